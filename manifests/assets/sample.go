package assets

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed all:sample sample-openshift
var sample embed.FS

// ownPools are those that MCO brings itself where openshift-install installs.
const ownPools = "openshift/10-pools.yaml"

// WriteSample copies the sample install directory for the standalone flow to dir, which must not exist or be empty.
func WriteSample(dir string) error {
	return writeSample(dir, "", "sample")
}

// WriteOpenShiftSample does the same for the openshift flow: with an install-config.yaml of its own, and without MCO's
// pools.
func WriteOpenShiftSample(dir string) error {
	return writeSample(dir, ownPools, "sample", "sample-openshift")
}

// writeSample copies trees, each over those before it, without one file.
func writeSample(dir, without string, trees ...string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("write sample install directory: %s is not empty", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write sample install directory: %w", err)
	}
	for _, tree := range trees {
		root, err := fs.Sub(sample, tree)
		if err != nil {
			return fmt.Errorf("write sample install directory: %w", err)
		}
		if err := copyTree(dir, root, without); err != nil {
			return err
		}
	}
	return nil
}

func copyTree(dir string, root fs.FS, without string) error {
	return fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == without {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		raw, err := fs.ReadFile(root, path)
		if err != nil {
			return fmt.Errorf("read sample %s: %w", path, err)
		}
		// 0600 as openshift-install writes them: an install directory holds credentials.
		return os.WriteFile(to, raw, 0o600)
	})
}
