package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy"
)

// LabelConfigHash on an image is the content hash of the rendered config that is in it; LabelRenderedConfig is its
// name.
const (
	LabelConfigHash     = "dayone.dev/config-hash"
	LabelRenderedConfig = "dayone.dev/rendered-config"
)

// wanted is what the served config asks of this node.
type wanted struct {
	config  mcfgv1.MachineConfig // as encapsulated: without files and units
	content []byte               // the whole config as it was served; nil when the server did not add it
	image   deploy.Image
	hash    string // "" when nothing says what it must be
	layered bool   // the image was made for this config, so it must say so; otherwise it is a base image
}

// readWanted reads the encapsulated config, or its renamed copy when a former run had come so far.
func readWanted(root string, c Config) (wanted, error) {
	raw, err := os.ReadFile(filepath.Join(root, encapsulatedPath))
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = os.ReadFile(filepath.Join(root, encapsulatedPath+".bak"))
	}
	if err != nil {
		return wanted{}, badConfig(fmt.Errorf("%w (the config server adds that file)", err))
	}
	var w wanted
	if err := json.Unmarshal(raw, &w.config); err != nil {
		return wanted{}, badConfig(fmt.Errorf("%s: %w", encapsulatedPath, err))
	}
	if w.image, err = deploy.ParseImage(w.config.Spec.OSImageURL); err != nil {
		return wanted{}, badConfig(fmt.Errorf("osImageURL: %w", err))
	}
	w.hash = c.ConfigHash
	w.layered = c.ConfigHash != "" || w.config.Annotations[manifests.AnnotationPreBuiltImage] != ""
	content, err := os.ReadFile(filepath.Join(root, contentPath))
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return wanted{}, badConfig(err)
	}
	var whole mcfgv1.MachineConfig
	if err := json.Unmarshal(content, &whole); err != nil {
		return wanted{}, badConfig(fmt.Errorf("%s: %w", contentPath, err))
	}
	w.content = content
	w.layered = w.layered || whole.Annotations[manifests.AnnotationPreBuiltImage] != ""
	if w.hash == "" {
		if w.hash, err = machineconfig.ContentHash(whole.Spec); err != nil {
			return wanted{}, badConfig(fmt.Errorf("%s: %w", contentPath, err))
		}
	}
	return w, nil
}

func badConfig(err error) error {
	return &deploy.Fault{Class: deploy.ClassConfig, Op: "read this node's config", Err: err,
		Next: "look at what the config server serves for this node's pool"}
}

// checkLabels refuses an image that holds another config, or that should hold this one and does not say so: it compares
// what the image says of its config with the config of this node.
func (w wanted) checkLabels(labels map[string]string) error {
	have := labels[LabelConfigHash]
	if w.hash == "" || have == w.hash || (have == "" && !w.layered) {
		return nil
	}
	f := &deploy.Fault{Class: deploy.ClassUnlike, Op: "check image",
		Next: "build the image from the config that is served, or serve the config that it was built from"}
	if have == "" {
		f.Err = fmt.Errorf("the image has no label %s, so nothing says that it holds config %s", LabelConfigHash,
			w.config.Name)
	} else {
		f.Err = fmt.Errorf("the image holds config %s (%s), this node's config is %s (%s)", labels[LabelRenderedConfig],
			short(have), w.config.Name, short(w.hash))
	}
	return f
}

func short(hash string) string { return hash[:min(len(hash), 19)] }

// checkHost refuses what cannot be changed on a first boot.
func (w wanted) checkHost(root string) error {
	raw, err := os.ReadFile(filepath.Join(root, "proc/sys/crypto/fips_enabled"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read FIPS mode: %w", err)
	}
	if on := strings.TrimSpace(string(raw)) == "1"; on != w.config.Spec.FIPS {
		return &deploy.Fault{Class: deploy.ClassConfig, Op: "check FIPS mode",
			Err:  fmt.Errorf("the config says %t, this node runs with %t", w.config.Spec.FIPS, on),
			Next: "set it in the boot arguments of the disk image (fips=1); it cannot be changed afterwards"}
	}
	return nil
}

// hasKernelArguments tells whether the booted deployment has what the config asks for.
func (w wanted) hasKernelArguments(d *deploy.Deployment) bool {
	if d.KernelArguments == nil {
		return true // not to be known with this deployer; it was asked for when staging
	}
	return !deploy.ChangesKernelArguments(d.KernelArguments, w.stageOptions())
}

func (w wanted) stageOptions() deploy.StageOptions {
	return deploy.StageOptions{AppendKernelArguments: w.config.Spec.KernelArguments}
}

// kernelRelease is what uname -r says, "" when it cannot be read.
func kernelRelease(root string) string {
	raw, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// isKernelType tells whether a kernel is of a MachineConfig's kernelType, by the marks that RHEL's kernels carry in
// their release ("+rt", "+64k"). A layered image brings its kernel; nothing is installed on a node.
func isKernelType(release, kernelType string) bool {
	switch kernelType {
	case "realtime":
		return strings.Contains(release, "rt")
	case "64k-pages":
		return strings.Contains(release, "64k")
	default:
		return true
	}
}
