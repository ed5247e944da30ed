package openshift

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/bootstrap/openshift/patch"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// nodeInstallDir is the install directory on the bootstrap node, with the layering field and what it names. It is not
// below /opt/openshift: the installer's log bundle takes all of that.
const nodeInstallDir = bootstrapnode.ConfigDir + "/install"

// Program says how the bootstrap node gets the dayone program. Exactly one of Image and URL is set.
type Program struct {
	// Image is a container image by digest with the program at /usr/bin/dayone, pulled with the cluster's pull secret.
	Image string
	// URL is an HTTP(S) address from which Ignition fetches the program; SHA512 is its hash in hex.
	URL, SHA512 string
}

var imageByDigest = regexp.MustCompile(`^[a-zA-Z0-9.-]+(:[0-9]{2,5})?(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}$`)

// Validate names the first thing that is wrong.
func (p Program) Validate() error {
	bad := func(flag, next, format string, args ...any) error {
		return report.Finding{Path: flag, Rule: "program", Message: fmt.Sprintf(format, args...), Next: next}
	}
	switch {
	case p.Image == "" && p.URL == "":
		return bad("--program-image", "give --program-image HOST/NAME@sha256:…, or --program-url and --program-sha512",
			"the bootstrap node needs the dayone program, and nothing says where it is")
	case p.Image != "" && p.URL != "":
		return bad("--program-url", "give one of them", "both an image and a URL are set")
	case p.Image != "":
		if !imageByDigest.MatchString(p.Image) {
			return bad("--program-image", "write HOST/NAME@sha256:…", "%q is no image by digest", p.Image)
		}
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return bad("--program-url", "write https://HOST/PATH", "%q is no address that Ignition can fetch", p.URL)
	}
	if raw, err := hex.DecodeString(p.SHA512); err != nil || len(raw) != 64 {
		if p.SHA512 != "" {
			return bad("--program-sha512", "take it from sha512sum", "%q is no SHA-512: 128 hexadecimal digits are wanted",
				p.SHA512)
		}
		return bad("--program-sha512", "take it from sha512sum",
			"the program comes over the network, so its SHA-512 is needed")
	}
	return nil
}

// Additions is what the bootstrap node gets beside the installer's files.
func Additions(in *preflight.Input, p Program) (patch.Additions, error) {
	if err := p.Validate(); err != nil {
		return patch.Additions{}, err
	}
	if in.Sidecar.Config.Flow != installconfig.FlowOpenShift {
		return patch.Additions{}, report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".flow",
			Rule:    "flow",
			Message: "only the openshift flow has a bootstrap.ign to patch",
			Next:    "run dayone bootstrap on the bootstrap host instead, or set flow: openshift"}
	}
	files, err := installFiles(in)
	if err != nil {
		return patch.Additions{}, err
	}
	cluster := in.Sidecar.Cluster
	stays := cluster.InPlace() || cluster.Agent && in.Sidecar.Config.InCluster()
	if (stays || cluster.Agent) && p.Image == "" {
		why := "the live image fetches no files at its start"
		if stays {
			why = "the node keeps a registry of its own, whose program comes out of the same image as dayone"
		}
		return patch.Additions{}, report.Finding{Path: "--program-url", Rule: "program", Message: why,
			Next: "give --program-image HOST/NAME@sha256:…"}
	}
	a := patch.Additions{Target: cluster.IgnitionFile()}
	a.Files = append(files, patch.File{Path: bootstrapnode.GatePath, Mode: 0o644,
		Content: bootstrapnode.Gate()})
	units := []string{bootstrapnode.GateUnit, bootstrapnode.BootstrapUnit}
	if p.Image != "" {
		env := "DAYONE_IMAGE=" + p.Image + "\n"
		if stays {
			env += bootstrapnode.AlsoFetch + "\n"
		}
		a.Files = append(a.Files, patch.File{Path: bootstrapnode.ProgramEnvPath, Mode: 0o644, Content: []byte(env)},
			patch.File{Path: bootstrapnode.FetchPath, Mode: 0o755, Content: bootstrapnode.FetchScript()})
		units = append(units, bootstrapnode.FetchUnit)
	} else {
		a.Files = append(a.Files, patch.File{Path: bootstrapnode.ProgramPath, Mode: 0o755, URL: p.URL,
			SHA512: strings.ToLower(p.SHA512)})
	}
	for _, u := range units {
		a.Units = append(a.Units, patch.Unit{Name: u, Contents: bootstrapnode.Unit(u)})
	}
	switch {
	case cluster.InPlace():
		return withInPlace(a), nil
	case cluster.Agent:
		return withAgent(a), nil
	}
	a.DropIns = []patch.DropIn{{Unit: bootstrapnode.HeldUnit, Name: bootstrapnode.HoldDropIn,
		Contents: bootstrapnode.Hold()}}
	return a, nil
}

// withAgent makes the additions those of a live image that all hosts of a cluster boot: they begin with the
// installer's bootstrap, which runs on one of them, and bring the images onto the disk that this one boots next.
func withAgent(a patch.Additions) patch.Additions {
	a.Needs = bootstrapnode.AgentUnit
	for i := range a.Units {
		a.Units[i].Contents = bootstrapnode.WithBootstrap(a.Units[i].Contents)
	}
	a.Files = append(a.Files,
		patch.File{Path: bootstrapnode.CarryPath, Mode: 0o555, Content: bootstrapnode.CarryScript()},
		patch.File{Path: bootstrapnode.AgentDiskPath, Mode: 0o555, Content: bootstrapnode.AgentDisk()},
		patch.File{Path: bootstrapnode.AgentProgressPath, Mode: 0o555, Content: bootstrapnode.AgentProgress()})
	a.DropIns = []patch.DropIn{{Unit: bootstrapnode.HeldUnit, Name: bootstrapnode.HoldDropIn,
		Contents: bootstrapnode.AgentHold()}}
	return a
}

// withInPlace adds what holds the only node's bootstrap until the image is there, and brings that onto its disk.
func withInPlace(a patch.Additions) patch.Additions {
	a.Moves = []patch.Move{{From: bootstrapnode.InPlacePath, To: bootstrapnode.InPlaceMoved}}
	a.Files = append(a.Files,
		patch.File{Path: bootstrapnode.InPlacePath, Mode: 0o555, Content: bootstrapnode.InPlace()},
		patch.File{Path: bootstrapnode.CarryPath, Mode: 0o555, Content: bootstrapnode.CarryScript()},
		patch.File{Path: bootstrapnode.DiskInstallerPath, Mode: 0o555, Content: bootstrapnode.DiskInstaller()},
		patch.File{Path: bootstrapnode.HoldPath, Mode: 0o644, Content: bootstrapnode.HoldManifest()})
	a.DropIns = []patch.DropIn{{Unit: bootstrapnode.DiskUnit, Name: bootstrapnode.DiskDropInName,
		Contents: bootstrapnode.DiskDropIn(), Required: true}}
	return a
}

// nodeLayeringDir is the layering directory on the bootstrap node, whatever it is called on the admin's machine.
const nodeLayeringDir = installconfig.DefaultLayeringDir

// Files there: the CA of the final registry, and what reaches the machine that keeps the last log bundle.
const (
	nodeRegistryCA = "registry-ca.crt"
	nodeSpoolCA    = "log-spool-ca.crt"
	nodeSpoolToken = "log-spool.token"
)

// namedFiles are the files that the field names, and gives them the node's names in c.
func namedFiles(in *preflight.Input, c *installconfig.Config) (files []patch.File) {
	put := func(name string, mode int, content []byte) string {
		files = append(files, patch.File{Path: path.Join(nodeInstallDir, name), Mode: mode, Content: content})
		return name
	}
	if len(in.RegistryCA) > 0 && in.Shared == nil {
		c.Registry.CAFile = put(nodeRegistryCA, 0o644, in.RegistryCA)
	}
	c.Signing = installconfig.Signing{}
	if in.Signing.Key != nil {
		key, passphrase := preflight.KeyFiles(c.Signing)
		put(key, 0o600, in.Signing.Key)
		put(passphrase, 0o600, in.Signing.Passphrase)
	}
	if in.Signing.BasePolicy != nil {
		c.Signing.BaseImagePolicy = put("base-policy.json", 0o644, in.Signing.BasePolicy)
	}
	for i, public := range in.Signing.Public {
		c.Signing.PublicKeyFiles = append(c.Signing.PublicKeyFiles, put(fmt.Sprintf("signing-%d.pub", i), 0o644, public))
	}
	if s := in.LogSpool; s != nil {
		c.LogSpool.TokenFile = put(nodeSpoolToken, 0o600, []byte(s.Token))
		if s.CA != nil {
			c.LogSpool.CAFile = put(nodeSpoolCA, 0o644, s.CA)
		}
	}
	return files
}

// installFiles are the prepared install directory of the node: the field with nothing left to generate, the
// MachineOSConfigs, the Secrets that they name, and the Secrets and ConfigMaps beside them. They are 0600: Secrets are
// among them.
func installFiles(in *preflight.Input) ([]patch.File, error) {
	side := *in.Sidecar
	registry := side.Config.Registry
	side.Config.LayeringDir, side.Config.Registry = nodeLayeringDir, installconfig.Registry{}
	files := namedFiles(in, &side.Config)
	if in.Shared != nil {
		side.Config.Registry = installconfig.Registry{Type: registry.Type, Name: registry.Name}
		for _, name := range slices.Sorted(maps.Keys(in.Shared.Files())) {
			files = append(files, patch.File{Path: path.Join(preflight.SharedDir(nodeInstallDir), name), Mode: 0o600,
				Content: in.Shared.Files()[name]})
		}
	}
	side.Config.Pools = slices.Clone(side.Config.Pools)
	for i := range side.Config.Pools {
		p := &side.Config.Pools[i]
		*p = installconfig.Pool{Name: p.Name, BuildAt: p.BuildAt}
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	if err := enc.Encode(side); err != nil {
		return nil, fmt.Errorf("encode sidecar: %w", err)
	}
	files = append(files, patch.File{Path: installconfig.SidecarPath(nodeInstallDir), Mode: 0o600, Content: b.Bytes()})
	for _, o := range layeringObjects(in) {
		raw, err := manifests.Marshal(o.object)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", o.file, err)
		}
		files = append(files, patch.File{Path: path.Join(nodeInstallDir, nodeLayeringDir, o.file), Mode: 0o600,
			Content: raw})
	}
	return files, nil
}

// layeringObject is one object of the node's layering directory.
type layeringObject struct {
	file   string
	object any
}

// layeringObjects are the MachineOSConfigs, the Secrets that they name wherever those lie, and the Secrets and
// ConfigMaps of the layering directory.
func layeringObjects(in *preflight.Input) (list []layeringObject) {
	named := map[string]bool{}
	for _, p := range in.Pools {
		list = append(list, layeringObject{"machineosconfig-" + p.Name + ".yaml", p.MachineOSConfig.Object})
		named[p.MachineOSConfig.Object.Spec.RenderedImagePushSecret.Name] = true
		if ref := p.MachineOSConfig.Object.Spec.BaseImagePullSecret; ref != nil {
			named[ref.Name] = true
		}
	}
	beside := func(o manifests.Origin) bool { return path.Dir(o.File) == in.Sidecar.Config.LayeringDir }
	written := map[string]bool{}
	for _, s := range in.Set.Secrets {
		if name := s.Object.Name; !written[name] && (named[name] || beside(s.Origin)) {
			written[name] = true
			list = append(list, layeringObject{"secret-" + name + ".yaml", s.Object})
		}
	}
	for _, c := range in.Set.ConfigMaps {
		if beside(c.Origin) {
			list = append(list, layeringObject{"configmap-" + c.Object.Name + ".yaml", c.Object})
		}
	}
	return list
}
