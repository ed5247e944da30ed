package gather

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/gather/bundle"
)

// InstallerDir is where openshift-install's own bundle takes everything from (installer-gather.sh copies
// /var/log/openshift). The dot keeps the installer's analysis from taking the files below it for service records.
const InstallerDir = "/var/log/openshift/dayone.d"

// Keep writes what the installer's bundle lacks of this host into dir, without secrets: journal, build logs, nodes,
// MachineOSConfigs and rendered configs without content. A file is replaced whole, and only when it has changed.
//
// Everybody may read the files: installer-gather.sh copies them as root, which keeps modes and no groups, and packs the
// copy as core.
func Keep(ctx context.Context, o Options, dir string) error {
	o.NoCommands = true
	var packed bytes.Buffer
	if err := Host(ctx, o, &packed); err != nil {
		return err
	}
	made, err := bundle.Read(&packed)
	if err != nil {
		return err
	}
	if err := openDir(dir); err != nil {
		return err
	}
	for from, to := range map[string]string{dirDayone: "", dirRendered: "rendered", dirAssets + "/layering": "layering"} {
		for _, file := range made.Below(from) {
			inside := filepath.Join(to, filepath.FromSlash(strings.TrimPrefix(file.Name, from+"/")))
			if err := keepFile(dir, inside, file.Content); err != nil {
				return err
			}
		}
	}
	return nil
}

func keepFile(dir, inside string, content []byte) error {
	name := filepath.Join(dir, inside)
	old, err := os.ReadFile(name)
	if err == nil {
		err = os.Chmod(name, keptMode) // the file that replaces it has the same mode
		if err == nil && bytes.Equal(old, content) {
			return nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read what the installer's bundle has: %w", err)
	}
	at := dir
	for _, part := range strings.Split(filepath.Dir(inside), string(filepath.Separator)) {
		at = filepath.Join(at, part)
		if err := openDir(at); err != nil {
			return err
		}
	}
	if err := renameio.WriteFile(name, content, keptMode, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write for the installer's bundle: %w", err)
	}
	return nil
}

// keptMode is that of kept files, keptDirMode that of their directories.
const keptMode, keptDirMode fs.FileMode = 0o644, 0o755

// openDir makes a directory that everybody may read, whatever the umask.
func openDir(dir string) error {
	err := os.MkdirAll(dir, keptDirMode)
	if err == nil {
		err = os.Chmod(dir, keptDirMode)
	}
	if err != nil {
		return fmt.Errorf("make directory for the installer's bundle: %w", err)
	}
	return nil
}
