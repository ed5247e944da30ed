package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unfinished begins the names of files that are about to take another one's place.
const unfinished = ".dayone-"

// sweepDir removes unfinished files from a directory.
func sweepDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err := ignoreMissing(err); err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinished) || e.IsDir() {
			continue
		}
		if err := ignoreMissing(os.Remove(filepath.Join(dir, e.Name()))); err != nil {
			return err
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
