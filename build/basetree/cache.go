package basetree

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// cacheVersion is part of a cached tree's file name; another form of Tree needs another one.
const cacheVersion = "v5"

// Cache keeps trees on disk by the digest of the base's manifest. The zero value keeps nothing.
type Cache struct{ Dir string }

func (c Cache) file(digest string) string {
	return filepath.Join(c.Dir, "tree-"+cacheVersion+"-"+strings.ReplaceAll(digest, ":", "-"))
}

// Load gives the tree of that base; nil without an error means that it is not there.
func (c Cache) Load(digest string) (*Tree, error) {
	if c.Dir == "" {
		return nil, nil
	}
	f, err := os.Open(c.file(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open tree of base: %w", err)
	}
	defer f.Close()
	size, ok := whole(f)
	if !ok {
		return nil, nil // cut short or changed on the disk: it is only a cache
	}
	var tree Tree
	if err := gob.NewDecoder(io.NewSectionReader(f, 0, size)).Decode(&tree); err != nil {
		return nil, nil
	}
	return &tree, nil
}

// whole compares a file with the SHA-256 at its end; size is what comes before.
func whole(f *os.File) (size int64, ok bool) {
	info, err := f.Stat()
	if err != nil || info.Size() < sha256.Size {
		return 0, false
	}
	size = info.Size() - sha256.Size
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return 0, false
	}
	var want [sha256.Size]byte
	_, err = f.ReadAt(want[:], size)
	return size, err == nil && bytes.Equal(sum.Sum(nil), want[:])
}

// Save keeps the tree; the file appears whole or not at all. It holds accounts of the base, so only its owner can read
// it.
func (c Cache) Save(digest string, tree *Tree) error {
	if c.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make cache of trees: %w", err)
	}
	f, err := renameio.NewPendingFile(c.file(digest), renameio.WithPermissions(0o600))
	if err != nil {
		return fmt.Errorf("write tree of base: %w", err)
	}
	defer f.Cleanup() //nolint:errcheck // it removes what an error left
	sum := sha256.New()
	if err = gob.NewEncoder(io.MultiWriter(f, sum)).Encode(tree); err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err != nil {
		return fmt.Errorf("write tree of base: %w", err)
	}
	return nil
}
