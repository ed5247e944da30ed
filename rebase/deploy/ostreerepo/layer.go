package ostreerepo

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// impliedMark is an extended attribute of directories that a layer has only as parents of its entries. It is in layers'
// commits only.
const impliedMark = "user.dayone.implied"

// directoryMode is that of directories which no layer describes.
const directoryMode = unix.S_IFDIR | 0o755

// plainDirectory and implied are the checksums of such directories' attributes, in images and in layers.
var (
	plainDirectory = Checksum(sha256.Sum256(Attributes{Mode: directoryMode}.dirMeta()))
	implied        = Checksum(sha256.Sum256(impliedAttributes().dirMeta()))
)

func impliedAttributes() Attributes {
	return Attributes{Mode: directoryMode, Xattrs: map[string]string{impliedMark: "1"}}
}

// layerKey tells in a layer's commit that nothing below its root is a whiteout or an implied directory.
const (
	layerKey   = "dayone.layer"
	layerPlain = "plain"
)

// IsPlainLayer tells whether the layer of this commit may be overlaid with plain.
func (c Commit) IsPlainLayer() bool { return c.Metadata[layerKey] == layerPlain }

// Layer puts together the tree of one layer from its archive's entries.
type Layer struct {
	tx    *Transaction
	root  *Tree
	later []tar.Header // hard links to entries that follow
}

// NewLayer makes an empty layer; its objects go to tx.
func NewLayer(tx *Transaction) *Layer { return &Layer{tx: tx, root: newTree(implied)} }

// xattrRecord starts the names of extended attributes in archives. Source: GNU tar, bsdtar and libarchive alike.
const xattrRecord = "SCHILY.xattr."

// Add adds one entry: a directory, a file, a symbolic or a hard link; names are relative to the image's root.
func (l *Layer) Add(h *tar.Header, content io.Reader) error {
	a := Attributes{UID: uint32(h.Uid), GID: uint32(h.Gid), Mode: uint32(h.Mode) & 0o7777}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, xattrRecord); ok {
			if a.Xattrs == nil {
				a.Xattrs = map[string]string{}
			}
			a.Xattrs[name] = value
		}
	}
	name := strings.TrimSuffix(h.Name, "/")
	switch h.Typeflag {
	case tar.TypeDir:
		return l.addDirectory(name, a)
	case tar.TypeReg:
		a.Mode |= unix.S_IFREG
		sum, err := l.tx.WriteFile(a, content, h.Size)
		if err != nil {
			return fmt.Errorf("store %s: %w", h.Name, err)
		}
		return l.put(name, sum)
	case tar.TypeSymlink:
		a.Mode, a.Xattrs = unix.S_IFLNK|0o777, nil
		sum, err := l.tx.WriteLink(a, h.Linkname)
		if err != nil {
			return fmt.Errorf("store %s: %w", h.Name, err)
		}
		return l.put(name, sum)
	case tar.TypeLink:
		sum, ok := l.find(h.Linkname)
		if !ok {
			l.later = append(l.later, *h)
			return nil
		}
		return l.put(name, sum)
	default:
		return fmt.Errorf("%q of type %q: %w", h.Name, h.Typeflag, ErrEntry)
	}
}

func (l *Layer) addDirectory(name string, a Attributes) error {
	a.Mode |= unix.S_IFDIR
	meta, err := l.tx.put(kindMeta, a.dirMeta())
	if err != nil {
		return err
	}
	if name == "." || name == "" {
		l.root.meta = meta
		return nil
	}
	dir, base, err := l.root.parent(name)
	if err != nil {
		return err
	}
	delete(dir.files, base)
	if _, ok := dir.dirs[base]; !ok {
		dir.dirs[base] = newTree(meta)
	}
	dir.dirs[base].meta = meta
	return nil
}

func (l *Layer) put(name string, sum Checksum) error {
	dir, base, err := l.root.parent(name)
	if err != nil {
		return err
	}
	delete(dir.dirs, base)
	dir.files[base] = sum
	return nil
}

func (l *Layer) find(name string) (sum Checksum, ok bool) {
	dir := l.root
	elements := strings.Split(name, "/")
	for _, element := range elements[:len(elements)-1] {
		if dir, ok = dir.dirs[element]; !ok {
			return sum, false
		}
	}
	sum, ok = dir.files[elements[len(elements)-1]]
	return sum, ok
}

// drop takes away a directory with all that the layer has below it.
func (l *Layer) drop(name string) {
	dir, base := path.Split(name)
	parent := l.root
	for _, element := range strings.Split(strings.Trim(dir, "/"), "/") {
		next, ok := parent.dirs[element]
		if !ok {
			return
		}
		parent = next
	}
	delete(parent.dirs, base)
}

// Write stores the layer's directories and its commit, which says of itself whether it is plain. What the layer has in
// the directory without is left out, but for hard links to it from elsewhere; "": nothing is left out.
func (l *Layer) Write(without string) (Checksum, error) {
	for _, h := range l.later {
		sum, ok := l.find(h.Linkname)
		if !ok {
			return Checksum{}, fmt.Errorf("hard link %q to %q, which this layer does not have: %w", h.Name, h.Linkname, ErrEntry)
		}
		if err := l.put(h.Name, sum); err != nil {
			return Checksum{}, err
		}
	}
	if without != "" {
		l.drop(without)
	}
	metadata := map[string]string{}
	isSpecial := false
	for name, dir := range l.root.dirs {
		isSpecial = isSpecial || strings.HasPrefix(name, whiteoutPrefix) || dir.meta == implied || dir.special()
	}
	if !isSpecial {
		metadata[layerKey] = layerPlain
	}
	return l.root.Commit(l.tx, Commit{Metadata: metadata})
}

// Commit stores the tree as a commit; Tree and Meta of c are filled in.
func (t *Tree) Commit(tx *Transaction, c Commit) (Checksum, error) {
	_, err1 := tx.put(kindMeta, impliedAttributes().dirMeta())
	_, err2 := tx.put(kindMeta, Attributes{Mode: directoryMode}.dirMeta())
	var err error
	if c.Tree, err = t.write(tx); err != nil {
		return Checksum{}, errors.Join(err, err1, err2)
	}
	c.Meta = t.meta
	sum, err := tx.put(kindCommit, c.marshal())
	return sum, errors.Join(err, err1, err2)
}

// NewImage is an empty tree, for layers to be put over.
func NewImage() *Tree { return newTree(plainDirectory) }
