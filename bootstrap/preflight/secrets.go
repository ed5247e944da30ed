package preflight

import (
	"bytes"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/credentials"
)

// secrets checks the Secrets that the pools' MachineOSConfigs name.
func secrets(d *directory, in *Input, rep *report.Report) {
	for _, p := range in.Pools {
		item := p.MachineOSConfig
		registrySecret(d, in.Set, item.Origin.At("spec.renderedImagePushSecret.name", "secret-missing"),
			item.Object.Spec.RenderedImagePushSecret.Name, rep)
		if ref := item.Object.Spec.BaseImagePullSecret; ref != nil {
			registrySecret(d, in.Set, item.Origin.At("spec.baseImagePullSecret.name", "secret-missing"), ref.Name, rep)
		}
		// Without credentials the build succeeds, and the hand-over of its image fails when the masters are up. It is no
		// refusal: the registry may let anybody push.
		if p.PushAuth != nil && p.Repository != "" && !credentials.Covers(p.PushAuth, p.Repository) {
			host, _, _ := strings.Cut(p.Repository, "/")
			at := item.Origin.At("spec.renderedImagePushSecret.name", "push-secret-host")
			at.Next = "add an entry for " + host + " to its auths"
			rep.Warnf(at, "Secret %q has no credentials for %s", item.Object.Spec.RenderedImagePushSecret.Name, p.Repository)
		}
	}
}

// registrySecret checks one Secret; at is where it is named.
func registrySecret(d *directory, set *manifests.Set, at report.Finding, name string, rep *report.Report) {
	if name == "" {
		at.Next = "name a Secret of type " + string(corev1.SecretTypeDockerConfigJson)
		rep.Errorf(at, "no Secret is named")
		return
	}
	found := secretNamed(set, name)
	if found == nil {
		at.Next = "put it into " + d.sidecar.Config.LayeringDir + "/"
		rep.Errorf(at, "Secret %q is not in the install directory", name)
		return
	}
	if found.Object.Type != corev1.SecretTypeDockerConfigJson {
		at := found.Origin.At("type", "secret-type")
		at.Next = "make it with: kubectl create secret docker-registry --dry-run=client -o yaml"
		rep.Errorf(at, "Secret %q has type %q; registry credentials need %q", name, found.Object.Type,
			corev1.SecretTypeDockerConfigJson)
		return
	}
}

// secretContents refuses Secrets with registry credentials with which nobody can log in, whoever names them.
func secretContents(_ *directory, in *Input, rep *report.Report) {
	for _, s := range in.Set.Secrets {
		if s.Object.Type != corev1.SecretTypeDockerConfigJson {
			continue
		}
		key := "data"
		if len(s.Object.Data[corev1.DockerConfigJsonKey]) == 0 && len(s.Object.StringData) > 0 {
			key = "stringData"
		}
		if err := credentials.Check(dockerConfig(s.Object)); err != nil {
			at := s.Origin.At(key+"["+corev1.DockerConfigJsonKey+"]", "secret-content")
			at.Next = "it must hold a JSON object with the key auths, as podman login --authfile writes it"
			rep.Errorf(at, "Secret %q holds no registry credentials that work: %v", s.Object.Name, err)
		}
	}
}

// secretNamed is the last Secret of a name, nil when there is none.
func secretNamed(set *manifests.Set, name string) (found *manifests.Item[*corev1.Secret]) {
	for i := range set.Secrets {
		if set.Secrets[i].Object.Name == name {
			found = &set.Secrets[i]
		}
	}
	return found
}

func dockerConfig(s *corev1.Secret) []byte {
	if raw := s.Data[corev1.DockerConfigJsonKey]; len(raw) > 0 {
		return raw
	}
	return []byte(s.StringData[corev1.DockerConfigJsonKey])
}

// normalizedSecret is the content of a Secret with registry credentials, nil when there is no usable one. It brings the
// Secret in the set into the form that image clients read; Kubernetes knows another one, too.
func normalizedSecret(set *manifests.Set, name string) []byte {
	found := secretNamed(set, name)
	if found == nil || found.Object.Type != corev1.SecretTypeDockerConfigJson {
		return nil
	}
	raw := dockerConfig(found.Object)
	if accounts, err := credentials.Parse(raw); err != nil || len(accounts) == 0 {
		return nil
	}
	plain, err := credentials.Normalize(raw)
	if err != nil || bytes.Equal(plain, raw) {
		return raw
	}
	found.Object.Data, found.Object.StringData = map[string][]byte{corev1.DockerConfigJsonKey: plain}, nil
	return plain
}

// nodesCanPull warns when the nodes' credentials have nothing for the final registry: all goes well until the bootstrap
// host and its mirror are gone, and the next node or the next image then cannot be pulled. It is no refusal: the
// registry may let anybody pull.
func nodesCanPull(d *directory, in *Input, rep *report.Report) {
	for _, p := range in.Pools {
		have := nodePull(d, p.Name)
		if have == nil || p.Repository == "" || d.shared != nil || credentials.Covers(have.raw, p.Repository) {
			continue
		}
		host, _, _ := strings.Cut(p.Repository, "/")
		have.at.Next += ", unless " + host + " lets anybody pull"
		rep.Warnf(have.at, "the nodes' pull secret has no credentials for %s, from where pool %s pulls its image once the "+
			"bootstrap host is gone", p.Repository, p.Name)
	}
}

// nodeCredentials are those with which a pool's nodes pull. The finding at has their place and what to do there.
type nodeCredentials struct {
	raw []byte
	at  report.Finding
}

// nodePull finds a pool's credentials: in the openshift flow the cluster's pull secret, else what its MachineConfigs
// write; nil where the install directory does not say.
func nodePull(d *directory, pool string) *nodeCredentials {
	if d.sidecar.Config.Flow != installconfig.FlowOpenShift {
		return writtenCredentials(d, pool)
	}
	for _, s := range d.set.Secrets {
		if s.Object.Name == cluster.PullSecretName && s.Object.Namespace == cluster.PullSecretNamespace {
			at := s.Origin.At("data["+corev1.DockerConfigJsonKey+"]", "pull-secret-host")
			at.Next = "add one that may pull to it here, or to pullSecret in install-config.yaml before " +
				"openshift-install create manifests"
			return &nodeCredentials{dockerConfig(s.Object), at}
		}
	}
	if d.pullSecret == nil {
		return nil
	}
	return &nodeCredentials{d.pullSecret, report.Finding{File: installconfig.FileName, Path: "pullSecret",
		Rule: "pull-secret-host", Next: "add one that may pull"}}
}

// writtenCredentials are those that a pool's MachineConfigs write, that of install-config.yaml's pull secret among
// them, merged as the agent does on the node.
func writtenCredentials(d *directory, pool string) *nodeCredentials {
	paths := []string{nodesettings.PullSecretPath, nodesettings.KubeletAuthPath, nodedisk.OSTreeAuth}
	last := map[string]*nodeCredentials{} // of one path the last file counts
	for _, item := range selected(d.set, pool) {
		config, err := d.ignition(item)
		if err != nil {
			continue // invalidIgnition refuses it
		}
		for _, f := range config.Storage.Files {
			if !slices.Contains(paths, f.Path) {
				continue
			}
			if raw, err := machineconfig.Contents(f.Contents); err == nil {
				last[f.Path] = &nodeCredentials{raw, credentialsPlace(item, f.Path)}
			}
		}
	}
	var out *nodeCredentials
	for _, path := range paths {
		c := last[path]
		if c == nil {
			continue
		}
		if out != nil {
			merged, err := credentials.Merge(out.raw, c.raw)
			if err != nil {
				continue // what is no auth.json has nothing for any registry
			}
			c.raw = merged
		}
		out = c
	}
	return out
}

// credentialsPlace is where a user adds to credentials that a MachineConfig writes.
func credentialsPlace(item machineConfig, file string) report.Finding {
	if file == nodesettings.PullSecretPath {
		return report.Finding{File: installconfig.FileName, Path: "pullSecret", Rule: "pull-secret-host",
			Next: "add one that may pull"}
	}
	at := item.Origin.At("spec.config.storage.files", "pull-secret-host")
	at.Next = "add one that may pull to " + file
	return at
}
