package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/nodesettings"
)

// Load reads and checks an install directory that has been prepared (or still holds the field: then nothing is
// written). platform is GOOS/GOARCH of the nodes, for example linux/amd64.
func Load(dir, platform string) (*Input, error) {
	d, err := readDirectory(dir, platform)
	if err != nil {
		return nil, err
	}
	if d.consumed() {
		return nil, report.Finding{File: d.sidecar.Cluster.IgnitionFile(), Rule: "ignition-made",
			Message: "openshift-install has made the Ignition configs and deleted all manifests: " +
				"there is nothing left to prepare",
			Next: "go on with dayone ignition; to change a manifest, begin again with an empty directory"}
	}
	pools, generated := defaultPools(d.set.Pools, d.sidecar.Config.Flow)
	d.set.Pools = append(d.set.Pools, pools...)
	settings, err := nodesettings.Objects(d.nodes, d.set.Pools)
	if err != nil {
		return nil, err
	}
	d.set.Append(settings)
	registry, err := d.registryConfig()
	if err != nil {
		return nil, err
	}
	generated = append(generated, registry...)
	if found := decodedInput(d); len(found) > 0 {
		return nil, &report.Invalid{Findings: found}
	}
	return judge(d, generated, installChecks(), []check{rendering})
}

// LoadLayering reads and checks the layering directory, and nothing of the installer's: those files are gone once it
// has made Ignition configs, and on the bootstrap node its own programs read them. The Set of the result has
// MachineOSConfigs, Secrets and ConfigMaps only.
func LoadLayering(dir, platform string) (*Input, error) {
	d, err := readDirectory(dir, platform)
	if err != nil {
		return nil, err
	}
	// Secrets count wherever they lie; machineOSConfigs refuses the MachineOSConfigs outside the layering directory.
	d.set = &manifests.Set{MachineOSConfigs: d.set.MachineOSConfigs, Secrets: d.set.Secrets,
		ConfigMaps: d.set.ConfigMaps, Findings: d.set.Findings}
	return judge(d, nil, layeringChecks())
}

// judge resolves what was read and checks it. A stage of checks runs when the stages before it found no error.
func judge(d *directory, generated []Generated, stages ...[]check) (*Input, error) {
	rep := &report.Report{Findings: slices.Clone(d.settled)}
	in := resolve(d, rep)
	in.Generated = append(generated, in.Generated...)
	for i, stage := range stages {
		if i > 0 && rep.Err() != nil {
			break
		}
		for _, c := range stage {
			c(d, in, rep)
		}
	}
	if err := refusedByAPI(d, in, rep); err != nil {
		return nil, err
	}
	rep.Add(ignored(d)...)
	locate(d.dir, rep.Findings)
	in.Warnings = rep.Warnings()
	return in, rep.Err()
}

// Layering is the layering field with its defaults. The field of install-config.yaml counts before that of an older
// sidecar, as in dayone prepare.
func Layering(dir string) (*installconfig.Sidecar, error) {
	sidecar, _, err := layering(dir)
	return sidecar, err
}

// layering also returns install-config.yaml, nil when openshift-install has deleted it.
func layering(dir string) (*installconfig.Sidecar, *installconfig.Document, error) {
	at, err := os.Stat(dir)
	if err == nil && !at.IsDir() {
		err = errors.New("it is a file, and a directory is wanted")
	}
	if err != nil {
		return nil, nil, report.Finding{File: dir, Rule: "unreadable",
			Message: fmt.Sprintf("the install directory cannot be read: %v", err), Next: "give it with --dir"}
	}
	doc, err := installconfig.Load(dir)
	var sidecar *installconfig.Sidecar
	switch {
	case errors.Is(err, fs.ErrNotExist):
		next := "there is no " + installconfig.FileName + " in " + dir + ": give the install directory with --dir, or put " +
			installconfig.Field + " into " + installconfig.FileName + " there and run dayone prepare"
		if installconfig.DetectFlow(dir) == installconfig.FlowOpenShift {
			next = "openshift-install has deleted " + installconfig.FileName +
				" before dayone prepare read it: begin again with an empty directory, and run dayone prepare first"
		}
		sidecar, err = earlier(dir, next)
	case err != nil:
	case doc.Config == nil:
		sidecar, err = earlier(dir, "put "+installconfig.Field+" into "+installconfig.FileName+" and run dayone prepare")
	default:
		sidecar, err = doc.Resolve(dir)
	}
	return sidecar, doc, err
}

// Prepared refuses a directory whose layering field is still in install-config.yaml: openshift-install would stop at
// the field. It also refuses one without the key that dayone prepare makes: nodes would not ask for signatures, or ask
// for those of another key. What cannot be read is left to Load, which says more.
func Prepared(dir string) error {
	sidecar, doc, err := layering(dir)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if doc != nil && doc.Config != nil {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field, Rule: "not-prepared",
			Message: "the field is still there: the install directory is not prepared for layering",
			Next:    "run dayone prepare --dir " + dir + " first"}
	}
	if !sidecar.Config.On() {
		return nil
	}
	for _, name := range madeByPrepare(sidecar.Config.Signing) {
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); errors.Is(err, fs.ErrNotExist) {
			return report.Finding{File: name, Rule: "not-prepared",
				Message: "the file is missing: the install directory has lost a part of the key that signs images",
				Next: "put it back; or, while no node has come, remove " + SigningDir + " and run dayone prepare --dir " + dir +
					" again: it makes a new key"}
		}
	}
	return nil
}

// earlier is what an earlier dayone prepare stored. Without it, the error says what to do in this state of the
// directory.
func earlier(dir, next string) (*installconfig.Sidecar, error) {
	s, err := installconfig.ReadSidecar(dir)
	if !errors.Is(err, installconfig.ErrNotPrepared) {
		return s, err
	}
	return nil, report.Finding{File: installconfig.FileName, Path: installconfig.Field, Rule: "not-prepared",
		Message: "the install directory is not prepared for layering", Next: next}
}
