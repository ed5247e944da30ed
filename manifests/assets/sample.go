package assets

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed all:sample
var sample embed.FS

// WriteSample copies the sample install directory to dir, which must not exist or be empty.
func WriteSample(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("write sample install directory: %s is not empty", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write sample install directory: %w", err)
	}
	root, err := fs.Sub(sample, "sample")
	if err != nil {
		return fmt.Errorf("write sample install directory: %w", err)
	}
	return fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
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
