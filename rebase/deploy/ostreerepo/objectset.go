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

// Bounds of what is kept in memory of a layer that carries objects. Source: libostree, ostree-core.h
// (OSTREE_MAX_METADATA_SIZE); the others are far above what files have.
const (
	maxMetadata  = 10 << 20 // bytes of one object that is no file
	maxXattrs    = 1 << 20  // bytes of one file's extended attributes
	maxAllXattrs = 64 << 20 // bytes of the extended attributes that a layer names for several files
)

// The kinds of entries that only archives have: extended attributes stand in front of the file that they belong to,
// as content or as a link to content that came before. Source: ostree-ext, "OSTree tar format": 1 and 0.
const (
	kindXattrs      = "file-xattrs"
	kindXattrsLink  = "file-xattrs-link"
	kindXattrsLink0 = "file.xattrs"
	kindCommitMeta  = "commitmeta"
)

// ObjectSet takes the objects of an ostree commit from the archives of an encapsulated image. Each object must be what
// its name says.
type ObjectSet struct {
	tx     *Transaction
	files  map[string]Checksum
	have   map[string]bool // names of all objects
	commit *Checksum
	// shared are extended attributes that several files have, by their own checksum.
	shared map[Checksum][]byte
	size   int
	// next are those of the file that follows.
	next struct {
		file   Checksum
		xattrs []byte
		ok     bool
	}
}

// NewObjectSet makes an empty set; its objects go to tx.
func NewObjectSet(tx *Transaction) *ObjectSet {
	return &ObjectSet{tx: tx, files: map[string]Checksum{}, have: map[string]bool{},
		shared: map[Checksum][]byte{}}
}

// Add takes one entry by its name below the repository: "objects/xx/yyy.KIND", or "xattrs/SUM" of the older format.
func (s *ObjectSet) Add(name string, h *tar.Header, content io.Reader) error {
	if sum, ok := strings.CutPrefix(name, "xattrs/"); ok {
		return s.addShared(sum, h, content)
	}
	sum, kind, err := objectOf(name)
	if err != nil {
		return err
	}
	switch kind {
	case kindXattrs:
		return s.addShared(sum.String(), h, content)
	case kindXattrsLink, kindXattrsLink0:
		return s.addXattrs(sum, h, content)
	case kindFile:
		return s.addFile(sum, h, content)
	case kindTree, kindMeta, kindCommit:
		return s.addMetadata(sum, kind, h, content)
	case kindCommitMeta:
		return nil // signatures of the commit, which is known by the image's digest
	default:
		return fmt.Errorf("object %s: kind %q is unknown", name, kind)
	}
}

// objectOf reads "objects/xx/yyy.KIND".
func objectOf(name string) (sum Checksum, kind string, err error) {
	dir, base := path.Split(name)
	hex, kind, ok := strings.Cut(base, ".")
	if !ok {
		return sum, "", fmt.Errorf("object %q: its name has no kind", name)
	}
	sum, err = ParseChecksum(path.Base(dir) + hex)
	if err != nil {
		return sum, "", fmt.Errorf("object %q: %w", name, err)
	}
	return sum, kind, nil
}

func readBounded(h *tar.Header, content io.Reader, limit int64) ([]byte, error) {
	if h.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("%q is no regular file", h.Name)
	}
	if h.Size > limit {
		return nil, fmt.Errorf("%q has %d bytes, more than %d", h.Name, h.Size, limit)
	}
	raw := make([]byte, h.Size)
	_, err := io.ReadFull(content, raw)
	return raw, err
}

func (s *ObjectSet) addMetadata(sum Checksum, kind string, h *tar.Header, content io.Reader) error {
	raw, err := readBounded(h, content, maxMetadata)
	if err != nil {
		return err
	}
	got, err := s.tx.put(kind, raw)
	if err != nil {
		return err
	}
	if got != sum {
		return wrongObject(sum, kind, got)
	}
	s.have[objectName(sum, kind)] = true
	if kind == kindCommit {
		if s.commit != nil && *s.commit != sum {
			return fmt.Errorf("it carries two commits, %s and %s", s.commit, sum)
		}
		s.commit = &sum
	}
	return nil
}

func wrongObject(want Checksum, kind string, got Checksum) error {
	return fmt.Errorf("object %s.%s: its content has the checksum %s", want, kind, got)
}

func (s *ObjectSet) addShared(name string, h *tar.Header, content io.Reader) error {
	raw, err := readBounded(h, content, maxXattrs)
	if err != nil {
		return err
	}
	sum, err := ParseChecksum(name)
	if err != nil {
		return err
	}
	if got := Checksum(sha256.Sum256(raw)); got != sum {
		return wrongObject(sum, kindXattrs, got)
	}
	if s.size += len(raw); s.size > maxAllXattrs {
		return fmt.Errorf("the layer's extended attributes are larger than %d bytes", maxAllXattrs)
	}
	s.shared[sum] = raw
	return nil
}

func (s *ObjectSet) addXattrs(file Checksum, h *tar.Header, content io.Reader) (err error) {
	s.next.file, s.next.ok = file, true
	if h.Typeflag != tar.TypeLink {
		s.next.xattrs, err = readBounded(h, content, maxXattrs)
		return err
	}
	// the target is "…/xx/yyy.file-xattrs", in the older format "…/xattrs/SUM"
	sum, err := ParseChecksum(path.Base(h.Linkname))
	if err != nil {
		if sum, _, err = objectOf(h.Linkname); err != nil {
			return err
		}
	}
	raw, ok := s.shared[sum]
	if !ok {
		return fmt.Errorf("object %s.file: its extended attributes %s are missing", file, sum)
	}
	s.next.xattrs = raw
	return nil
}

func (s *ObjectSet) addFile(sum Checksum, h *tar.Header, content io.Reader) error {
	if !s.next.ok || s.next.file != sum {
		return fmt.Errorf("object %s.file: its extended attributes are missing", sum)
	}
	s.next.ok = false
	xattrs, err := parseXattrs(s.next.xattrs)
	if err != nil {
		return fmt.Errorf("object %s.file: read extended attributes: %w", sum, err)
	}
	a := Attributes{UID: uint32(h.Uid), GID: uint32(h.Gid), Mode: uint32(h.Mode) & 0o7777, Xattrs: xattrs}
	var got Checksum
	switch h.Typeflag {
	case tar.TypeReg:
		a.Mode |= unix.S_IFREG
		got, err = s.tx.WriteFile(a, content, h.Size)
	case tar.TypeSymlink:
		a.Mode = unix.S_IFLNK | 0o777
		got, err = s.tx.WriteLink(a, h.Linkname)
	default:
		err = errors.New("it is neither a file nor a symbolic link")
	}
	if err != nil {
		return fmt.Errorf("object %s.file: %w", sum, err)
	}
	if got != sum {
		return wrongObject(sum, kindFile, got)
	}
	s.files[sum.String()], s.have[objectName(sum, kindFile)] = sum, true
	return nil
}

// parseXattrs reads a(ayay), names with their zero byte.
func parseXattrs(raw []byte) (map[string]string, error) {
	elements, err := split(raw, 1)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(elements))
	for _, e := range elements {
		parts, err := fields(e, 2)
		if err != nil {
			return nil, err
		}
		name, err := unterminated(parts[0])
		if err != nil {
			return nil, err
		}
		all[name] = string(parts[1])
	}
	return all, nil
}

// Write stores a commit that keeps the set's files: a directory in which each has its checksum as name, as ostree-ext
// keeps them.
func (s *ObjectSet) Write() (Checksum, error) {
	if s.commit != nil {
		return Checksum{}, fmt.Errorf("it carries the commit %s, which only the first layer may", s.commit)
	}
	tree := newTree(plainDirectory)
	tree.files = s.files
	return tree.Commit(s.tx, Commit{})
}

// Commit gives the commit that the set has, nil when it has none; Missing needs one.
func (s *ObjectSet) Commit() *Checksum { return s.commit }

// Missing says what a commit lacks.
type Missing struct {
	Objects int
	First   string // "/usr/bin/x (SUM.file)"
}

// Missing looks for each object of the set's commit, in the set and in those which layers keep. What the repository has
// from elsewhere does not count: whether an image is whole does not depend on the node.
func (s *ObjectSet) Missing(layers []Commit) (Missing, error) {
	for _, l := range layers {
		tree := s.tx.repo.Tree(l)
		if err := tree.load(); err != nil {
			return Missing{}, err
		}
		for _, sum := range tree.files {
			s.have[objectName(sum, kindFile)] = true
		}
	}
	raw, err := s.tx.read(*s.commit, kindCommit)
	if err != nil {
		return Missing{}, err
	}
	c, err := parseCommit(raw)
	if err != nil {
		return Missing{}, err
	}
	w := missingWalk{set: s, seen: map[Checksum]bool{}}
	w.need("/", c.Meta, kindMeta)
	err = w.walk("/", c.Tree)
	return w.found, err
}

// missingWalk looks at each directory once.
type missingWalk struct {
	set   *ObjectSet
	seen  map[Checksum]bool
	found Missing
}

func (w *missingWalk) need(p string, sum Checksum, kind string) bool {
	if w.set.have[objectName(sum, kind)] {
		return true
	}
	if w.found.Objects++; w.found.First == "" {
		w.found.First = fmt.Sprintf("%s (%s.%s)", p, sum, kind)
	}
	return false
}

func (w *missingWalk) walk(p string, tree Checksum) error {
	if w.seen[tree] {
		return nil
	}
	w.seen[tree] = true
	if !w.need(p, tree, kindTree) {
		return nil
	}
	raw, err := w.set.tx.read(tree, kindTree)
	if err != nil {
		return err
	}
	l, err := parseListing(raw)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(l.files) {
		w.need(path.Join(p, name), l.files[name], kindFile)
	}
	for _, name := range sortedKeys(l.dirs) {
		sums := l.dirs[name]
		w.need(path.Join(p, name), sums[1], kindMeta)
		if err := w.walk(path.Join(p, name), sums[0]); err != nil {
			return err
		}
	}
	return nil
}
