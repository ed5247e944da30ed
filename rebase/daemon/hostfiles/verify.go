package hostfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Mismatch is one path where the node is unlike its config.
type Mismatch struct {
	Path string `json:"path"`
	// Why says what differs, and by how many bytes where contents do; never the contents themselves.
	Why string `json:"why"`
}

// Verify compares the node with a config, by path. It fails only when the config or the disk cannot be read.
func (h Host) Verify(c ign35.Config) ([]Mismatch, error) {
	entries, err := h.entries(c)
	if err != nil {
		return nil, err
	}
	var out []Mismatch
	for _, p := range sorted(entries) {
		why, err := h.compare(entries[p])
		if err != nil {
			return nil, err
		}
		if why != "" {
			out = append(out, Mismatch{Path: p, Why: why})
		}
	}
	disabled, err := h.notEnabled(c)
	return append(out, disabled...), err
}

// Paths lists what a config has on disk, for whoever watches it.
func (h Host) Paths(c ign35.Config) ([]string, error) {
	entries, err := h.entries(c)
	if err != nil {
		return nil, err
	}
	return sorted(entries), nil
}

// compare says how the disk differs from an entry; empty: it does not.
func (h Host) compare(e entry) (string, error) {
	at := filepath.Join(h.Root, e.path)
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
