package hostfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// tree reads and writes entries below a root.
type tree struct{ root string }

// put writes an entry unless it is on disk already.
func (t tree) put(e entry) error {
	why, err := t.compare(e)
	if err != nil || why == "" {
		return err
	}
	return t.write(e)
}

func (t tree) write(e entry) error {
	at, err := t.at(e.path)
	if err != nil {
		return err
	}
	if e.link != "" {
		return replaceLink(at, e.link)
	}
	return replaceFile(at, e)
}

// at gives the place of a path on the node. A symbolic link among its directories must not lead out of the root: Root
// is "/" on a node, but a directory in an agent's container and in tests.
func (t tree) at(p string) (string, error) {
	dir := filepath.Join(t.root, path.Dir(p))
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make directory of %s: %w", p, err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("find directory of %s: %w", p, err)
	}
	root, err := filepath.EvalSymlinks(t.root)
	if err != nil {
		return "", fmt.Errorf("find root: %w", err)
	}
	if root != "/" && real != root && !strings.HasPrefix(real, root+"/") {
		return "", fmt.Errorf("write %s: a link leads out of %s", p, t.root)
	}
	return filepath.Join(real, path.Base(p)), nil
}

// compare says how the disk differs from an entry; empty: it does not.
func (t tree) compare(e entry) (string, error) {
	at := filepath.Join(t.root, e.path)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return "is missing", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", e.path, err)
	}
	if e.link != "" {
		target, err := os.Readlink(at)
		if err != nil || target != e.link {
			return "is no link to " + e.link, nil //nolint:nilerr // what is no link differs
		}
		return "", nil
	}
	if !info.Mode().IsRegular() {
		return "is no regular file", nil
	}
	const kept = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	if have := info.Mode() & kept; have != e.mode&kept {
		return fmt.Sprintf("has mode %s, not %s", have, e.mode&kept), nil
	}
	if uid, gid := owner(info); uid != e.uid || gid != e.gid {
		return fmt.Sprintf("belongs to %d:%d, not %d:%d", uid, gid, e.uid, e.gid), nil
	}
	if info.Size() != int64(len(e.data)) {
		return fmt.Sprintf("has %d bytes, not %d", info.Size(), len(e.data)), nil
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", e.path, err)
	}
	if !bytes.Equal(data, e.data) {
		return fmt.Sprintf("has other contents of the same %d bytes", len(data)), nil
	}
	return "", nil
}
