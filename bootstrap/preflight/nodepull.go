package preflight

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/credentials"
)

// nodeCredentials are those with which a pool's nodes pull, as far as the install directory tells.
type nodeCredentials struct {
	raw []byte
	// at is their place, next what to do there; without a host that is said after it.
	at   report.Finding
	next string
}

// kubeletAuth is where a node has the cluster's pull secret.
const kubeletAuth = "/var/lib/kubelet/config.json"

// nodePull finds a pool's: in the openshift flow the cluster's pull secret, else what its MachineConfigs bring; nil
// where nobody tells.
func (c *checker) nodePull(pool string) *nodeCredentials {
	if !c.openshift() {
		return c.broughtCredentials(pool)
	}
	for _, s := range c.in.Set.Secrets {
		if s.Object.Name != cluster.PullSecretName || s.Object.Namespace != cluster.PullSecretNamespace {
			continue
		}
		raw := s.Object.Data[corev1.DockerConfigJsonKey]
		if len(raw) == 0 {
			raw = []byte(s.Object.StringData[corev1.DockerConfigJsonKey])
		}
		return &nodeCredentials{raw, s.Origin.At("data["+corev1.DockerConfigJsonKey+"]", "pull-secret-host"),
			"add one that may pull to it here, or to pullSecret in install-config.yaml before openshift-install create manifests"}
	}
	doc, err := installconfig.Load(c.dir)
	if err != nil || doc.PullSecret() == nil {
		return nil // the installer has taken it in already
	}
	return &nodeCredentials{doc.PullSecret(), report.Finding{File: installconfig.FileName, Path: "pullSecret",
		Rule: "pull-secret-host"}, "add one that may pull"}
}

// broughtCredentials are those that a MachineConfig writes; the last one counts, as on the node.
func (c *checker) broughtCredentials(pool string) (out *nodeCredentials) {
	for _, item := range c.in.Set.MachineConfigs {
		if item.Object.Labels[manifests.LabelRole] != pool {
			continue
		}
		config, err := machineconfig.Parse(item.Object.Spec.Config.Raw)
		if err != nil {
			continue // refused elsewhere
		}
		for _, f := range config.Storage.Files {
			if f.Path != kubeletAuth && f.Path != firstboot.AuthPath {
				continue
			}
			if raw, err := machineconfig.Contents(f.Contents); err == nil {
				out = &nodeCredentials{raw, item.Origin.At("spec.config.storage.files", "pull-secret-host"),
					"add one that may pull to " + f.Path}
			}
		}
	}
	return out
}

// nodesCanPull warns when the nodes' credentials have nothing for the final registry: all goes well until the bootstrap
// host and its mirror are gone, and the next node or the next image then cannot be pulled. It is no refusal: the
// registry may let anybody pull.
func (c *checker) nodesCanPull(p *Pool) {
	have := c.nodePull(p.Name)
	if have == nil || p.Repository == "" {
		return
	}
	p.NodePull = have.raw
	if credentials.Covers(have.raw, p.Repository) {
		return
	}
	host, _, _ := strings.Cut(p.Repository, "/")
	have.at.Next = have.next + ", unless " + host + " lets anybody pull"
	c.rep.Warnf(have.at,
		"the nodes' pull secret has no credentials for %s, from where pool %s pulls its image once the bootstrap host is gone", p.Repository, p.Name)
}
