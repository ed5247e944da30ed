package preflight

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/credentials"
)

// Names of the Secrets that dayone makes from auth.json files.
const (
	generatedPushSecret = "dayone-push"
	generatedPullSecret = "dayone-base-pull"
)

// ownPrefix begins the names of files that dayone generates.
const ownPrefix = "99_dayone-"

func secretFile(dir, name string) string { return path.Join(dir, ownPrefix+"secret-"+name+".yaml") }

func machineOSConfigFile(dir, pool string) string {
	return path.Join(dir, ownPrefix+"machineosconfig-"+pool+".yaml")
}

func poolPath(i int) string { return fmt.Sprintf("%s.pools[%d]", installconfig.Field, i) }

// generatedObjects are the MachineOSConfig of a pool and the Secrets that it names, as far as dayone makes them.
type generatedObjects struct {
	config  mosc
	secrets []manifests.Item[*corev1.Secret]
}

// generateMachineOSConfig makes the MachineOSConfig of a pool whose Containerfile install-config.yaml holds or names.
// at is the pool's place there. Without a Containerfile it refuses.
func generateMachineOSConfig(d *directory, p installconfig.Pool, at report.Finding, rep *report.Report) (
	generatedObjects, bool) {
	dir := d.sidecar.Config.LayeringDir
	if !p.Generated() {
		at.Rule = "mosc-missing"
		at.Next = fmt.Sprintf("put a MachineOSConfig named %q into %s/ or give the pool a containerfile", p.Name, dir)
		rep.Errorf(at, "pool %q is to be layered and has no MachineOSConfig", p.Name)
		return generatedObjects{}, false
	}
	content, ok := userContainerfile(d, p, at, rep)
	if !ok {
		return generatedObjects{}, false
	}
	push, pull, secrets, ok := registrySecrets(d, rep)
	if !ok {
		return generatedObjects{}, false
	}
	registry := d.sidecar.Config.Registry
	spec := cmp.Or(p.PushSpec, cmp.Or(registry.Name, registry.Repository)+"/"+p.Name+"-os:latest")
	object := &mcfgv1.MachineOSConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: p.Name},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: push},
			RenderedImagePushSpec:   mcfgv1.ImageTagFormat(spec),
			Containerfile:           []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: content}},
		},
	}
	if pull != "" {
		object.Spec.BaseImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: pull}
	}
	origin := manifests.Origin{File: machineOSConfigFile(dir, p.Name), Document: 1}
	return generatedObjects{mosc{Object: object, Origin: origin}, secrets}, true
}

// add puts generated objects into the input; several pools share the Secrets.
func (g generatedObjects) add(in *Input) {
	for _, s := range g.secrets {
		if slices.ContainsFunc(in.Generated, func(have Generated) bool { return have.File == s.Origin.File }) {
			continue
		}
		in.Generated = append(in.Generated, Generated{File: s.Origin.File, Object: s.Object})
		in.Set.Secrets = append(in.Set.Secrets, s)
	}
	in.Generated = append(in.Generated, Generated{File: g.config.Origin.File, Object: g.config.Object})
	in.Set.MachineOSConfigs = append(in.Set.MachineOSConfigs, g.config)
}

// userContainerfile is the Containerfile that install-config.yaml holds or names.
func userContainerfile(d *directory, p installconfig.Pool, at report.Finding, rep *report.Report) (string, bool) {
	if p.ContainerfilePath == "" {
		return p.Containerfile, true
	}
	at.Path += ".containerfilePath"
	raw, err := d.file(p.ContainerfilePath)
	if err != nil {
		at.Rule, at.Next = "containerfile-path", "the path is relative to the install directory"
		rep.Errorf(at, "read Containerfile: %v", err)
		return "", false
	}
	if err := installconfig.RefuseUTF16(raw, p.ContainerfilePath, true); err != nil {
		rep.Add(report.Of(err)...)
		return "", false
	}
	if n := len([]rune(string(raw))); n > installconfig.MaxContainerfile {
		at.Rule, at.Next = "containerfile-length", "move files into an image and COPY --from it"
		rep.Errorf(at, "%s has %d characters; the API allows %d", p.ContainerfilePath, n, installconfig.MaxContainerfile)
		return "", false
	}
	return string(raw), true
}

// registrySecrets are the names of the Secrets of generated MachineOSConfigs, and those Secrets that come from
// auth.json files.
func registrySecrets(d *directory, rep *report.Report) (push, pull string, made []manifests.Item[*corev1.Secret],
	ok bool) {
	if d.shared != nil {
		if d.sidecar.Config.Flow != installconfig.FlowOpenShift {
			pull = clusterregistry.PullSecret
		}
		return clusterregistry.PushSecret, pull, nil, true // addShared makes them
	}
	r := d.sidecar.Config.Registry
	push, pull, ok = r.PushSecret, r.BaseImagePullSecret, true
	for _, s := range []struct {
		name      *string
		generated string
		file, key string
	}{
		{&push, generatedPushSecret, r.PushAuthFile, "pushAuthFile"},
		{&pull, generatedPullSecret, r.BaseImagePullAuthFile, "baseImagePullAuthFile"},
	} {
		if s.file == "" {
			continue
		}
		*s.name = s.generated
		auth, good := authFile(d, s.file, s.key, rep)
		ok = ok && good
		made = append(made, manifests.Item[*corev1.Secret]{
			Object: clusterregistry.Secret(s.generated, auth),
			Origin: manifests.Origin{File: secretFile(d.sidecar.Config.LayeringDir, s.generated), Document: 1},
		})
	}
	return push, pull, made, ok
}

// authFile is the content of an auth.json that the key of install-config.yaml names.
func authFile(d *directory, name, key string, rep *report.Report) ([]byte, bool) {
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".registry." + key, Rule: "auth-file",
		Next: "make it with: podman login --authfile " + name + " REGISTRY"}
	raw, err := d.file(name)
	if err != nil {
		rep.Errorf(at, "read credentials: %v", err)
		return nil, false
	}
	accounts, err := credentials.Parse(raw)
	if err != nil || len(accounts) == 0 {
		rep.Errorf(at, "%s holds no registry credentials", name)
		return nil, false
	}
	if host := accounts.WithoutPassword(); host != "" {
		rep.Errorf(at,
			"%s has no password for %s: a credential helper of this machine keeps it, which no other machine can ask",
			name, host)
		return nil, false
	}
	if plain, err := credentials.Normalize(raw); err == nil {
		raw = plain
	}
	return raw, true
}

// unusedRegistry warns of keys that only generated MachineOSConfigs would have: each of the user's own names its
// repository and its Secrets itself.
func unusedRegistry(_ *directory, in *Input, rep *report.Report) {
	c := in.Sidecar.Config
	if c.InCluster() || slices.ContainsFunc(c.Pools, installconfig.Pool.Generated) {
		return
	}
	for _, k := range []struct{ key, value, instead string }{
		{"repository", c.Registry.Repository, "renderedImagePushSpec"},
		{"pushSecret", c.Registry.PushSecret, "renderedImagePushSecret"},
		{"pushAuthFile", c.Registry.PushAuthFile, "renderedImagePushSecret"},
		{"baseImagePullSecret", c.Registry.BaseImagePullSecret, "baseImagePullSecret"},
		{"baseImagePullAuthFile", c.Registry.BaseImagePullAuthFile, "baseImagePullSecret"},
	} {
		if k.value == "" {
			continue
		}
		at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".registry." + k.key,
			Rule: "registry-unused", Next: "remove it: spec." + k.instead + " of each MachineOSConfig counts"}
		rep.Warnf(at, "it is for generated MachineOSConfigs, and no pool has a containerfile: %q is not used", k.value)
	}
}

// generatedMark begins the first line of every generated file; the digest of all that follows ends it.
const generatedMark = "# Generated by dayone manifests from " + installconfig.FileName + "; edit that instead. sha256:"

// marked puts the mark above a generated file's content.
func marked(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append([]byte(generatedMark+hex.EncodeToString(sum[:])+"\n"), body...)
}

// untouched says whether a file is as dayone wrote it.
func untouched(raw []byte) bool {
	_, body, found := bytes.Cut(raw, []byte("\n"))
	return found && bytes.Equal(raw, marked(body))
}

// WriteGenerated writes the generated objects into the install directory and returns the paths of those that were not
// there yet. It removes files of an earlier run that install-config.yaml no longer asks for. It can be repeated, and
// writes each file atomically.
func (in *Input) WriteGenerated(dir string) ([]string, error) {
	var files []string
	for _, old := range in.earlier {
		if !slices.ContainsFunc(in.Generated, func(g Generated) bool { return g.File == old }) {
			if err := os.Remove(filepath.Join(dir, filepath.FromSlash(old))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove what was generated before: %w", err)
			}
		}
	}
	for _, g := range in.Generated {
		raw, err := manifests.Marshal(g.Object)
		if err != nil {
			return files, fmt.Errorf("encode %s: %w", g.File, err)
		}
		raw = marked(raw)
		full := filepath.Join(dir, filepath.FromSlash(g.File))
		if have, err := os.ReadFile(full); err == nil && bytes.Equal(have, raw) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return files, fmt.Errorf("make directory for %s: %w", g.File, err)
		}
		mode := os.FileMode(0o644)
		if _, secret := g.Object.(*corev1.Secret); secret || g.Secret {
			mode = 0o600
		}
		if err := renameio.WriteFile(full, raw, mode, renameio.IgnoreUmask()); err != nil {
			return files, fmt.Errorf("write %s: %w", g.File, err)
		}
		files = append(files, g.File)
	}
	return files, nil
}
