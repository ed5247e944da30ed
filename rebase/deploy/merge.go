package deploy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"dayone.dev/dayone/rebase/deploy/layertar"
)

// mergeLayer moves the checked out layer upper over the tree lower, as the OCI specification says: whiteouts remove, files replace,
// directories keep their content and take the upper one's mode and owner. (`ostree checkout --union --whiteouts` keeps the lower
// directory's mode and fails where a directory replaces a link, hence our own.) Both trees must be on one file system; upper is used up.
func mergeLayer(lower, upper string) error {
	entries, err := os.ReadDir(upper)
	if err != nil {
		return fmt.Errorf("read layer directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == layertar.OpaqueWhiteout {
			if err := removeContent(lower); err != nil {
				return err
			}
		}
	}
	// Whiteouts first: they mean lower layers only, whatever their place in the directory.
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), layertar.WhiteoutPrefix)
		if !ok || e.Name() == layertar.OpaqueWhiteout {
			continue
		}
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("whiteout %q: %w", e.Name(), layertar.ErrHostile)
		}
		if err := os.RemoveAll(filepath.Join(lower, name)); err != nil {
			return fmt.Errorf("apply whiteout: %w", err)
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), layertar.WhiteoutPrefix) {
			continue
		}
		if err := mergeEntry(filepath.Join(lower, e.Name()), filepath.Join(upper, e.Name()), e.IsDir()); err != nil {
			return err
		}
	}
	return nil
}

func mergeEntry(lower, upper string, isDir bool) error {
	info, err := os.Lstat(lower)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isDir:
		return os.Rename(upper, lower)
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(lower, 0o700); err != nil {
			return fmt.Errorf("merge layer: %w", err)
		}
	case err != nil:
		return fmt.Errorf("merge layer: %w", err)
	case !isDir || !info.IsDir():
		// Removed first: renaming a file over another name of itself (same content, one object) would do nothing.
		if err := os.RemoveAll(lower); err != nil {
			return fmt.Errorf("merge layer: %w", err)
		}
		return mergeEntry(lower, upper, isDir)
	}
	if err := mergeLayer(lower, upper); err != nil {
		return err
	}
	return copyAttributes(lower, upper)
}

func copyAttributes(to, from string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return fmt.Errorf("merge layer: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("merge layer: no owner of %q", from)
	}
	if err := os.Lchown(to, int(stat.Uid), int(stat.Gid)); err != nil {
		return fmt.Errorf("merge layer: %w", err)
	}
	if err := syscall.Chmod(to, stat.Mode&0o7777); err != nil { // os.Chmod knows no numeric setgid and sticky bits
		return fmt.Errorf("merge layer: set mode of %s: %w", to, err)
	}
	return nil
}

func removeContent(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("apply opaque whiteout: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("apply opaque whiteout: %w", err)
		}
	}
	return nil
}
