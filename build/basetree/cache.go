package basetree

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cacheVersion is part of a cached tree's file name; another form of Tree needs another one.
const cacheVersion = "v4"

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
	var tree Tree
	if err := gob.NewDecoder(f).Decode(&tree); err != nil {
		return nil, nil // cut short or of an older program: it is only a cache
	}
	return &tree, nil
}

// Save keeps the tree; the file appears whole or not at all. It holds accounts of the base, so only its owner can read it.
func (c Cache) Save(digest string, tree *Tree) error {
	if c.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make cache of trees: %w", err)
	}
	f, err := os.CreateTemp(c.Dir, ".tree-*")
	if err != nil {
		return fmt.Errorf("write tree of base: %w", err)
	}
	defer os.Remove(f.Name())
	err = errors.Join(gob.NewEncoder(f).Encode(tree), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), c.file(digest))
	}
	if err != nil {
		return fmt.Errorf("write tree of base: %w", err)
	}
	return nil
}
