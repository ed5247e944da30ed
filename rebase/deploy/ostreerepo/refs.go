package ostreerepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// headsDir keeps a file for each name. Source: ostree documentation, "Anatomy of a repository".
const headsDir = "refs/heads"

// Refs lists the repository's own names, those of remotes left out, with the commits that they name.
func (r *Repository) Refs() (map[string]string, error) {
	heads := filepath.Join(r.path, headsDir)
	refs := map[string]string{}
	err := filepath.WalkDir(heads, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(heads, path)
		refs[name] = strings.TrimSpace(string(raw))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	return refs, nil
}

// Resolve gives the commit that a name stands for, "" when there is none. It reads the file that ostree keeps for each
// name, which costs less than a process for each of an image's layers.
func (r *Repository) Resolve(ref string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(r.path, headsDir, ref))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read ref: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// DeleteRefs removes names; their objects go with ostree's next prune.
func (r *Repository) DeleteRefs(names ...string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(r.path, headsDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete ref: %w", err)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return r.touch()
}

// touch tells other programs that something is new.
func (r *Repository) touch() error {
	now := time.Now()
	return os.Chtimes(r.path, now, now)
}

// KernelFiles gives size by content checksum of the kernels and initramfs in a commit.
func (r *Repository) KernelFiles(commit Checksum) (map[Checksum]int64, error) {
	c, err := r.Commit(commit)
	if err != nil {
		return nil, err
	}
	files := map[Checksum]int64{}
	modules, err := r.Tree(c).dir("usr/lib/modules")
	if err != nil || modules == nil {
		return files, err
	}
	for _, version := range modules.dirs {
		if err := version.load(); err != nil {
			return nil, err
		}
		for _, name := range []string{"vmlinuz", "initramfs.img"} {
			sum, ok := version.files[name]
			if !ok {
				continue
			}
			info, err := os.Lstat(filepath.Join(r.path, objectPath(sum, kindFile)))
			if err != nil {
				return nil, fmt.Errorf("look at kernel: %w", err)
			}
			files[sum] = info.Size()
		}
	}
	return files, nil
}
