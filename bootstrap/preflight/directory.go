package preflight

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
)

// directory is what an install directory holds: read, not judged. Paths are relative to it, with slashes.
type directory struct {
	// dir is its path.
	dir      string
	platform string
	sidecar  *installconfig.Sidecar
	// pullSecret is install-config.yaml's, nil once openshift-install has deleted that file.
	pullSecret []byte
	// nodes are the nodes' settings of install-config.yaml in the standalone flow; settled is what is wrong with the
	// installer's part of that file in either.
	nodes   installconfig.NodeSettings
	settled []report.Finding
	// shared is what the cluster's own registries share, nil where the images go elsewhere.
	shared *clusterregistry.Shared
	// set has the known objects, documents every document of whatever kind.
	set       *manifests.Set
	documents []document
	// entries are those of the installer's two directories.
	entries map[string][]fs.DirEntry
	// present are the existing files of markers.
	present map[string]bool
	// files are those that checks look into.
	files map[string]file
	// configs are the Ignition configs of MachineConfigs that were parsed before, see ignition.
	configs map[*mcfgv1.MachineConfig]ignitionConfig
	// recorded is what the installer's state file says of the files that the installer wrote.
	recorded map[string][]byte
}

// document is one manifest as JSON.
type document struct {
	raw    []byte
	origin manifests.Origin
}

// ignitionConfig is a parsed Ignition config, or why it is none.
type ignitionConfig struct {
	config ign35.Config
	err    error
}

// ignition parses a MachineConfig's Ignition config, each one once: that takes longer than what any check does with it.
// The config is only to be read.
func (d *directory) ignition(item machineConfig) (ign35.Config, error) {
	known, ok := d.configs[item.Object]
	if !ok {
		known.config, known.err = machineconfig.Parse(item.Object.Spec.Config.Raw)
		d.configs[item.Object] = known
	}
	return known.config, known.err
}

// file is a file's content, or why it cannot be read.
type file struct {
	raw []byte
	err error
}

// installerDirs are the directories of the installer's manifests.
func installerDirs() []string { return []string{"manifests", "openshift"} }

// pointers are the Ignition configs that lead a node to the server of its real config.
func pointers() []string { return []string{"master.ign", "worker.ign", "arbiter.ign"} }

// markers are files and directories that tell how the cluster is installed and how far the installer is.
func markers() []string {
	return []string{installconfig.AgentConfig, "cluster-manifests", installconfig.InPlaceIgnition,
		installconfig.BootstrapIgnition, installconfig.AgentIgnition, "manifests", "openshift"}
}

func readDirectory(dir, platform string) (*directory, error) {
	sidecar, doc, err := layering(dir)
	if err != nil {
		return nil, err
	}
	if !sidecar.Config.On() {
		return nil, report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".enabled", Rule: "disabled",
			Message: "layering is switched off for this cluster",
			Next:    "continue the installation without dayone, or remove enabled: false"}
	}
	d := &directory{dir: dir, platform: platform, sidecar: sidecar, set: &manifests.Set{},
		entries: map[string][]fs.DirEntry{}, present: map[string]bool{}, files: map[string]file{},
		configs: map[*mcfgv1.MachineConfig]ignitionConfig{}}
	if doc != nil {
		d.pullSecret = doc.PullSecret()
	}
	switch {
	case sidecar.Config.Flow == installconfig.FlowStandalone:
		d.nodes, d.settled = nodeSettings(doc, sidecar)
	case doc != nil:
		d.settled = doc.Check(&sidecar.Config)
	}
	if err := d.shareRegistry(); err != nil {
		return nil, err
	}
	for _, marker := range markers() {
		_, err := os.Lstat(filepath.Join(dir, marker))
		d.present[marker] = err == nil
	}
	for _, sub := range installerDirs() {
		d.entries[sub], _ = os.ReadDir(filepath.Join(dir, sub)) // absent, or the reader of manifests refuses it
	}
	for _, sub := range append(installerDirs(), sidecar.Config.LayeringDir) {
		if err := d.readManifests(dir, sub); err != nil {
			return nil, err
		}
	}
	for _, name := range d.fileNames() {
		if name == "" {
			continue // the user names no file for this
		}
		raw, err := readInside(dir, name)
		d.files[name] = file{raw, err}
	}
	if slices.ContainsFunc(pointers(), func(name string) bool { return !errors.Is(d.files[name].err, fs.ErrNotExist) }) {
		d.recorded = recorded(dir)
	}
	return d, nil
}

// readManifests reads one directory of manifests. It may be absent, but not unreadable.
func (d *directory) readManifests(dir, sub string) error {
	full := filepath.Join(dir, sub)
	if _, err := os.Stat(full); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	o := manifests.InstallDirectory(path.Clean(filepath.ToSlash(sub)))
	o.Inspect = func(raw []byte, at manifests.Origin) { d.documents = append(d.documents, document{raw, at}) }
	set, err := manifests.ReadDir(full, o)
	if err != nil && report.Of(err) == nil {
		return report.Finding{File: sub, Rule: "unreadable", Message: fmt.Sprintf("the directory cannot be read: %v", err),
			Next: "it must be a directory of manifests that this user may read"}
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", sub, err)
	}
	d.set.Append(set)
	return nil
}

// fileNames are the files that checks look into: those that install-config.yaml names, those in dayone's own name, the
// pointer configs, and those that hold a Containerfile.
func (d *directory) fileNames() []string {
	c := d.sidecar.Config
	names := append(pointers(), installconfig.FileName, c.SignaturePolicyFile, c.Registry.CAFile,
		c.Registry.PushAuthFile, c.Registry.BaseImagePullAuthFile, c.LogSpool.TokenFile, c.LogSpool.CAFile)
	names = append(names, signingFiles(c.Signing)...)
	for _, p := range c.Pools {
		names = append(names, p.ContainerfilePath)
	}
	for _, item := range d.set.MachineOSConfigs {
		names = append(names, item.Origin.File)
	}
	for _, item := range d.set.Secrets {
		names = append(names, item.Origin.File)
	}
	for dir, entries := range d.entries {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ownPrefix) && !e.IsDir() {
				names = append(names, path.Join(dir, e.Name()))
			}
		}
	}
	return names
}

// file is the content of one of fileNames.
func (d *directory) file(name string) ([]byte, error) {
	f, read := d.files[name]
	if !read {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	return f.raw, f.err
}

// consumed says that the installer has taken the manifests into bootstrap.ign and deleted them.
func (d *directory) consumed() bool {
	return d.sidecar.Config.Flow == installconfig.FlowOpenShift && d.present[d.sidecar.Cluster.IgnitionFile()] &&
		!d.present["manifests"] && !d.present["openshift"]
}

// maxUserFile bounds files that install-config.yaml names, in bytes: the API takes Containerfiles of 4096 characters
// and Secrets of 1 MiB.
const maxUserFile = 1 << 20

// readInside reads a file of the install directory, and no other, whatever links lie there.
func readInside(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open install directory: %w", err)
	}
	defer root.Close()
	f, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxUserFile+1))
	if err == nil && len(raw) > maxUserFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxUserFile)
	}
	return raw, err
}

// installerState is the installer's record of all that it has made.
const installerState = ".openshift_install_state.json"

// maxState bounds the installer's state file, in bytes: it holds every asset, bootstrap.ign among them.
const maxState = 64 << 20

// recorded reads what the installer's state file says of the pointer configs; nil when it does not say.
func recorded(dir string) map[string][]byte {
	f, err := os.Open(filepath.Join(dir, installerState))
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxState {
		return nil
	}
	var assets map[string]struct {
		File *struct {
			Filename string `json:"Filename"`
			Data     string `json:"Data"`
		} `json:"File"`
	}
	if json.NewDecoder(f).Decode(&assets) != nil {
		return nil
	}
	out := map[string][]byte{}
	for _, name := range pointers() {
		for _, a := range assets {
			if a.File == nil || a.File.Filename != name {
				continue
			}
			if raw, err := base64.StdEncoding.DecodeString(a.File.Data); err == nil {
				out[name] = raw
			}
		}
	}
	return out
}
