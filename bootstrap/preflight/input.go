package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/validation"
)

// Input is everything that the install directory says, checked.
type Input struct {
	// Sidecar is the layering field and the cluster's name.
	Sidecar *installconfig.Sidecar
	// Set holds all objects of manifests/, openshift/ and the layering directory, and those that were generated.
	Set *manifests.Set
	// Pools are the pools to layer, in the user's order.
	Pools []Pool
	// Generated are the objects that dayone made because the user gave none, with the file that manifests writes them to.
	Generated []Generated
	// SignaturePolicy is the content of the signature policy that nodes apply, nil without one.
	SignaturePolicy []byte
	// RegistryCA is PEM of the authority that signs the final registry, nil without one.
	RegistryCA []byte
	// LogSpool is what reaches the machine that keeps the last log bundle, nil without one.
	LogSpool *LogSpool
	// Warnings are findings that do not stop the installation.
	Warnings []report.Finding
	// earlier are the files of the layering directory that an earlier run generated.
	earlier []string
}

// Pool is one pool to layer.
type Pool struct {
	installconfig.Pool
	// MachineOSConfig is the pool's; its spec has been checked.
	MachineOSConfig manifests.Item[*mcfgv1.MachineOSConfig]
	// Containerfile is the user's content for the platform; empty means that only the rendered config goes into the image.
	Containerfile string
	// Repository is where the image ends up: the push spec without its tag.
	Repository string
	// PushAuth is the content of the push Secret (.dockerconfigjson).
	PushAuth []byte
	// NodePull is what the pool's nodes pull with (auth.json), nil where the install directory does not tell.
	NodePull []byte
	// BasePull is the content of the base image pull Secret (.dockerconfigjson), nil without one.
	BasePull []byte
}

// Load reads and checks an install directory that has been prepared (or still holds the field: then nothing is
// written). platform is GOOS/GOARCH of the nodes, for example linux/amd64.
func Load(dir, platform string) (*Input, error) {
	sidecar, err := Layering(dir)
	if err != nil {
		return nil, err
	}
	if !sidecar.Config.On() {
		return nil, switchedOff()
	}
	if err := takenIn(dir, sidecar.Config.Flow); err != nil {
		return nil, err
	}
	in := &Input{Sidecar: sidecar, Set: &manifests.Set{}}
	api, err := validation.New()
	if err != nil {
		return nil, err
	}
	docs := &documents{api: api, layering: sidecar.Config.LayeringDir}
	if err := in.read(dir, docs.inspect); err != nil {
		return nil, err
	}
	var rep report.Report
	c := checker{in: in, rep: &rep, dir: dir, platform: platform}
	c.run()
	if err := c.api(docs); err != nil {
		return nil, err
	}
	rep.Add(in.Set.Findings...)
	in.Warnings = rep.Warnings()
	return in, rep.Err()
}

func switchedOff() error {
	return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".enabled", Rule: "disabled",
		Message: "layering is switched off for this cluster",
		Next:    "go on with the installation without dayone, or remove enabled: false"}
}

// Layering is the layering field with its defaults: that of install-config.yaml before an older sidecar's, as prepare
// has it.
func Layering(dir string) (*installconfig.Sidecar, error) {
	at, err := os.Stat(dir)
	if err == nil && !at.IsDir() {
		err = errors.New("it is a file, and a directory is wanted")
	}
	if err != nil {
		return nil, report.Finding{File: dir, Rule: "unreadable",
			Message: fmt.Sprintf("the install directory cannot be read: %v", err), Next: "give it with --dir"}
	}
	doc, err := installconfig.Load(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		next := "put " + installconfig.Field + " into " + installconfig.FileName + " there and run dayone prepare"
		if installconfig.DetectFlow(dir) == installconfig.FlowOpenShift {
			next = "openshift-install has deleted " + installconfig.FileName +
				" before dayone prepare read it: begin again with an empty directory, and run dayone prepare first"
		}
		return earlier(dir, next)
	case err != nil:
		return nil, err
	case doc.Config == nil:
		return earlier(dir, "put "+installconfig.Field+" into "+installconfig.FileName+" and run dayone prepare")
	}
	return doc.Resolve(dir)
}

// read takes the installer's two directories and the layering directory. Each may be absent, but not unreadable.
func (in *Input) read(dir string, inspect func([]byte, manifests.Origin)) error {
	for _, sub := range []string{"manifests", "openshift", in.Sidecar.Config.LayeringDir} {
		full := filepath.Join(dir, sub)
		if _, err := os.Stat(full); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		o := manifests.InstallDirectory(path.Clean(filepath.ToSlash(sub)))
		o.Inspect = inspect
		set, err := manifests.ReadDir(full, o)
		if err != nil && report.Of(err) == nil {
			return report.Finding{File: sub, Rule: "unreadable", Message: fmt.Sprintf("the directory cannot be read: %v", err),
				Next: "it must be a directory of manifests that this user may read"}
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", sub, err)
		}
		in.Set.Append(set)
	}
	return nil
}

// earlier is what an earlier dayone prepare stored; without it the message says what to do in this state of the
// directory.
func earlier(dir, next string) (*installconfig.Sidecar, error) {
	s, err := installconfig.ReadSidecar(dir)
	if !errors.Is(err, installconfig.ErrNotPrepared) {
		return s, err
	}
	return nil, report.Finding{File: installconfig.FileName, Path: installconfig.Field, Rule: "not-prepared",
		Message: "the install directory is not prepared for layering", Next: next}
}

// ControllerConfig is the install directory's, the last one as in rendering; empty without one.
func (in *Input) ControllerConfig() *mcfgv1.ControllerConfigSpec {
	n := len(in.Set.ControllerConfigs)
	if n == 0 {
		return &mcfgv1.ControllerConfigSpec{}
	}
	return &in.Set.ControllerConfigs[n-1].Object.Spec
}
