package ostreerepo

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Whiteouts, as in layers. Source: OCI image specification, layer.md.
const (
	whiteoutPrefix = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// ErrEntry marks an entry that cannot be where it says.
var ErrEntry = errors.New("entry is not possible there")

// Tree is a directory, read from a repository when it is looked at, or made in memory.
type Tree struct {
	repo  *Repository // nil: made in memory, or read
	sum   Checksum
	meta  Checksum
	files map[string]Checksum
	dirs  map[string]*Tree
}

func newTree(meta Checksum) *Tree {
	return &Tree{meta: meta, files: map[string]Checksum{}, dirs: map[string]*Tree{}}
}

func (t *Tree) load() error {
	if t.repo == nil {
		return nil
	}
	raw, err := t.repo.read(t.sum, kindTree)
	if err != nil {
		return err
	}
	l, err := parseListing(raw)
	if err != nil {
		return err
	}
	t.files, t.dirs = l.files, make(map[string]*Tree, len(l.dirs))
	for name, sums := range l.dirs {
		t.dirs[name] = &Tree{repo: t.repo, sum: sums[0], meta: sums[1]}
	}
	t.repo = nil
	return nil
}

// Overlay puts a layer over t, as the OCI specification says: whiteouts remove what lower layers have, files replace,
// directories keep their content and take the upper one's mode and owner. Directories that the layer has only as
// parents of its entries change no attributes. With plain, nothing below upper's root is a whiteout or such a parent,
// so that what t lacks is taken as it is, unread.
func (t *Tree) Overlay(upper *Tree, plain bool) error {
	if err := errors.Join(t.load(), upper.load()); err != nil {
		return err
	}
	if upper.meta != implied {
		t.meta = upper.meta
	}
	if _, opaque := upper.files[opaqueWhiteout]; opaque {
		t.files, t.dirs = map[string]Checksum{}, map[string]*Tree{}
	}
	// Whiteouts first: they mean lower layers only, whatever their place in the layer.
	if err := t.removeWhiteouts(upper); err != nil {
		return err
	}
	for name, sum := range upper.files {
		if !strings.HasPrefix(name, whiteoutPrefix) {
			delete(t.dirs, name)
			t.files[name] = sum
		}
	}
	for name, dir := range upper.dirs {
		if strings.HasPrefix(name, whiteoutPrefix) {
			continue
		}
		delete(t.files, name)
		lower, ok := t.dirs[name]
		if !ok && plain {
			t.dirs[name] = dir
			continue
		}
		if !ok {
			lower = newTree(plainDirectory)
			t.dirs[name] = lower
		}
		if err := lower.Overlay(dir, plain); err != nil {
			return err
		}
	}
	return nil
}

// removeWhiteouts removes what upper's whiteouts name.
func (t *Tree) removeWhiteouts(upper *Tree) error {
	for name := range upper.files {
		gone, ok := strings.CutPrefix(name, whiteoutPrefix)
		if !ok || name == opaqueWhiteout {
			continue
		}
		if !validName(gone) {
			return fmt.Errorf("whiteout %q: %w", name, ErrEntry)
		}
		delete(t.files, gone)
		delete(t.dirs, gone)
	}
	return nil
}

// Find gives the names in the directory p, "" for those that are no directories or not there.
func (t *Tree) dir(p string) (*Tree, error) {
	for _, name := range strings.Split(p, "/") {
		if err := t.load(); err != nil {
			return nil, err
		}
		next, ok := t.dirs[name]
		if !ok {
			return nil, nil
		}
		t = next
	}
	return t, t.load()
}

// Kernel gives the version of the kernel in usr/lib/modules, "" when there is none.
func (t *Tree) Kernel() (string, error) {
	modules, err := t.dir("usr/lib/modules")
	if err != nil || modules == nil {
		return "", err
	}
	for _, version := range sortedKeys(modules.dirs) {
		dir := modules.dirs[version]
		if err := dir.load(); err != nil {
			return "", err
		}
		if _, ok := dir.files["vmlinuz"]; ok {
			return version, nil
		}
	}
	return "", nil
}

// write stores what was made or changed and gives the tree's checksum.
func (t *Tree) write(tx *Transaction) (Checksum, error) {
	if t.repo != nil {
		return t.sum, nil
	}
	l := listing{files: t.files, dirs: make(map[string][2]Checksum, len(t.dirs))}
	for name, dir := range t.dirs {
		sum, err := dir.write(tx)
		if err != nil {
			return Checksum{}, err
		}
		l.dirs[name] = [2]Checksum{sum, dir.meta}
	}
	return tx.put(kindTree, l.marshal())
}

// special tells whether t holds whiteouts or implied directories below itself.
func (t *Tree) special() bool {
	for name := range t.files {
		if strings.HasPrefix(name, whiteoutPrefix) {
			return true
		}
	}
	for name, dir := range t.dirs {
		if strings.HasPrefix(name, whiteoutPrefix) || dir.meta == implied || dir.special() {
			return true
		}
	}
	return false
}

// parent gives the directory that p is in, made where it is missing, and p's name in it.
func (t *Tree) parent(p string) (*Tree, string, error) {
	dir, name := path.Split(p)
	for _, element := range strings.Split(strings.TrimSuffix(dir, "/"), "/") {
		if element == "" {
			continue
		}
		if _, isFile := t.files[element]; isFile {
			return nil, "", fmt.Errorf("%q, below something that is no directory: %w", p, ErrEntry)
		}
		next, ok := t.dirs[element]
		if !ok {
			next = newTree(implied)
			t.dirs[element] = next
		}
		t = next
	}
	if !validName(name) {
		return nil, "", fmt.Errorf("%q: %w", p, ErrEntry)
	}
	return t, name, nil
}
