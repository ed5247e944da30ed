package nodedisk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	renameio "github.com/google/renameio/v2"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/target"
)

// Dir is where MCO's daemon keeps what a node has (pkg/daemon/constants); an agent of either kind finds what the other
// left.
const Dir = "/etc/machine-config-daemon"

const (
	currentConfig = "currentconfig"
	currentImage  = "currentimage"
)

// Current is what a node has.
type Current struct {
	// Config is the rendered config, whole: with it the node knows what to remove when another one comes.
	Config *mcfgv1.MachineConfig
	// Image is the layered image by digest; empty: the node is not layered.
	Image string
}

// Target names config and image.
func (c Current) Target() target.Target { return target.Target{Config: c.Config.Name, Image: c.Image} }

// ReadCurrent reads what the node below root has; Config is nil when nothing has been applied yet.
func ReadCurrent(root string) (Current, error) {
	var c Current
	raw, err := os.ReadFile(filepath.Join(root, Dir, currentConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read current config: %w", err)
	}
	c.Config = &mcfgv1.MachineConfig{}
	if err := json.Unmarshal(raw, c.Config); err != nil {
		return Current{}, fmt.Errorf("read current config %s: %w", filepath.Join(Dir, currentConfig), err)
	}
	image, err := os.ReadFile(filepath.Join(root, Dir, currentImage))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Current{}, fmt.Errorf("read current image: %w", err)
	}
	c.Image = strings.TrimSpace(string(image))
	return c, nil
}

// WriteCurrent records what the node has; it may be done again.
func WriteCurrent(root string, c Current) error {
	raw, err := json.Marshal(c.Config)
	if err != nil {
		return fmt.Errorf("write current config: %w", err)
	}
	// 0600: the config holds the pull secret.
	if err := WriteFile(filepath.Join(root, Dir, currentConfig), raw, 0o600); err != nil {
		return err
	}
	at := filepath.Join(root, Dir, currentImage)
	if c.Image != "" {
		return WriteFile(at, []byte(c.Image), 0o644)
	}
	// Its absence says that the node is not layered.
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove current image: %w", err)
	}
	return nil
}

// WriteFile replaces a file, so that a power cut leaves the old or the new one, and makes its directory where it is
// missing.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := replace(path, content, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func replace(path string, content []byte, mode os.FileMode) error {
	// Beside the file: one made elsewhere keeps the SELinux label of that place, and Sweep finds it here. The mode is the
	// given one whatever the old file has: it may hold a secret now.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Cleanup())
	}
	return errors.Join(f.CloseAtomicallyReplace(), f.Cleanup())
}

// Sweep removes what killed writers of these records left beside them, of this version and of those before. No writer
// may run meanwhile.
func Sweep(root string) error {
	for _, path := range []string{filepath.Join(Dir, currentConfig), filepath.Join(Dir, currentImage), PendingPath} {
		left, err := filepath.Glob(filepath.Join(root, filepath.Dir(path), "."+filepath.Base(path)+`[0-9\-]*`))
		if err != nil {
			return fmt.Errorf("remove unfinished records: %w", err)
		}
		for _, file := range left {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove unfinished records: %w", err)
			}
		}
	}
	return nil
}
