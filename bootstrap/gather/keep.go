package gather

import (
	"bytes"
	"context"
	"fmt"
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
	for from, to := range map[string]string{dirDayone: "", dirRendered: "rendered", dirAssets + "/layering": "layering"} {
		for _, file := range made.Below(from) {
			name := filepath.Join(dir, to, filepath.FromSlash(strings.TrimPrefix(file.Name, from+"/")))
			if err := keepFile(name, file.Content); err != nil {
				return err
			}
		}
	}
	return nil
}

func keepFile(name string, content []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("make directory for the installer's bundle: %w", err)
	}
	if err := renameio.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("write for the installer's bundle: %w", err)
	}
	return nil
}
