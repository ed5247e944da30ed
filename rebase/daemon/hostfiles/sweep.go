package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// unfinished begins the names of files that are about to take another one's place.
const unfinished = ".dayone-"

// Sweep removes what writers that were killed left beside the paths of configs and among what was kept. Nobody may be
// writing.
func (h Host) Sweep(configs ...ign35.Config) error {
	dirs := map[string]bool{}
	for _, c := range configs {
		paths, err := h.Paths(c)
		if err != nil {
			return err
		}
		for _, p := range paths {
			dirs[filepath.Join(h.Root, filepath.Dir(p))] = true
		}
	}
	for _, kept := range []string{OriginalsDir, NoOriginalsDir} {
		err := filepath.WalkDir(filepath.Join(h.Root, kept), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs[p] = true
			}
			return ignoreMissing(err)
		})
		if err != nil {
			return fmt.Errorf("remove unfinished files: %w", err)
		}
	}
	for dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err := ignoreMissing(err); err != nil {
			return fmt.Errorf("remove unfinished files: %w", err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), unfinished) || e.IsDir() {
				continue
			}
			if err := ignoreMissing(os.Remove(filepath.Join(dir, e.Name()))); err != nil {
				return fmt.Errorf("remove unfinished files: %w", err)
			}
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
