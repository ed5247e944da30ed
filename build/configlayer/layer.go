package configlayer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"path"
	"sort"
	"strings"
	"time"

	"dayone.dev/dayone/build/basetree"
)

// Entry is one path of the layer.
type Entry struct {
	// Path is absolute; its parents are no symlinks in the base.
	Path     string
	Kind     basetree.Kind
	Mode     int64
	UID, GID int
	// Link is a symlink's exact text.
	Link    string
	Content []byte
	// Whiteout removes Path from the base.
	Whiteout bool
}

// InTree is the entry in a file tree.
func (e Entry) InTree() basetree.Entry {
	return basetree.Entry{Kind: e.Kind, Mode: e.Mode, UID: e.UID, GID: e.GID, Link: e.Link}
}

// Where a part of a config goes that the layer does not hold as it is.
const (
	// firstBoot means that Ignition does it on the first boot and no image can change it later.
	firstBoot = "first-boot"
	// inTmpfiles means a line in tmpfiles.d, applied on every boot.
	inTmpfiles = "tmpfiles.d"
	// inSysusers means a line in sysusers.d, applied on the first boot of the image.
	inSysusers = "sysusers.d"
	// inKargs means a line in bootc's kargs.d, applied when bootc deploys the image.
	inKargs = "kargs.d"
	// atDeployment means that the node's agent sets it in the boot entry of the image.
	atDeployment = "deployment"
	// removed means that an enablement link of the base is left out.
	removed = "removed"
)

// Placement names a part of the config that is not in the layer as it stands in the config, where it went and why.
type Placement struct {
	Path   string `json:"path"`
	Where  string `json:"where"`
	Reason string `json:"reason"`
}

// Layer is a compiled config.
type Layer struct {
	// Entries are in the order of the tar: by path, parents first.
	Entries []Entry
	// Tar is the uncompressed layer; DiffID is the digest of it.
	Tar    []byte
	DiffID string
	// Placements say what became of the rest of the config, by path.
	Placements []Placement
}

// Empty reports whether the config puts nothing into the image.
func (l *Layer) Empty() bool { return len(l.Entries) == 0 }

// Gzip is the layer as one gzip member of stored blocks (RFC 1951 §3.2.4). No compressor chooses these bytes, so the
// blob's digest is the same for every version of this program; a config layer is small enough not to need compression.
func (l *Layer) Gzip() []byte {
	const maxStored = 65535 // a stored block's length is 16 bits
	out := bytes.NewBuffer(make([]byte, 0, len(l.Tar)+len(l.Tar)/maxStored*5+32))
	out.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255})
	for rest := l.Tar; ; {
		n := min(len(rest), maxStored)
		last := byte(0)
		if n == len(rest) {
			last = 1
		}
		head := []byte{last, 0, 0, 0, 0}
		binary.LittleEndian.PutUint16(head[1:], uint16(n))
		binary.LittleEndian.PutUint16(head[3:], ^uint16(n))
		out.Write(head)
		out.Write(rest[:n])
		if rest = rest[n:]; last == 1 {
			break
		}
	}
	var tail [8]byte
	binary.LittleEndian.PutUint32(tail[:4], crc32.ChecksumIEEE(l.Tar))
	binary.LittleEndian.PutUint32(tail[4:], uint32(len(l.Tar)))
	out.Write(tail[:])
	return out.Bytes()
}

// Pack writes entries as a layer: parents added with the base's attributes, sorted, one time for all, numeric owners
// only.
func Pack(entries []Entry, tree *basetree.Tree, created time.Time) (*Layer, error) {
	all := withParents(entries, tree)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range all {
		if err := writeEntry(w, e, created); err != nil {
			return nil, fmt.Errorf("write %s to layer: %w", e.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	sum := sha256.Sum256(b.Bytes())
	return &Layer{Entries: all, Tar: b.Bytes(), DiffID: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// defaultDirMode is what Ignition gives to parents that it has to make.
const defaultDirMode = 0o755

func withParents(entries []Entry, tree *basetree.Tree) []Entry {
	byPath := map[string]Entry{}
	for _, e := range entries {
		byPath[e.Path] = e
	}
	for _, e := range entries {
		for dir := path.Dir(e.Path); dir != "/"; dir = path.Dir(dir) {
			if _, ok := byPath[dir]; ok {
				break // its own parents are there or come with it
			}
			parent := Entry{Path: dir, Kind: basetree.Directory, Mode: defaultDirMode}
			if known, ok := tree.Lookup(dir); ok && known.Kind == basetree.Directory {
				parent.Mode, parent.UID, parent.GID = known.Mode, known.UID, known.GID
			}
			byPath[dir] = parent
		}
	}
	out := make([]Entry, 0, len(byPath))
	for _, e := range byPath {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

func writeEntry(w *tar.Writer, e Entry, created time.Time) error {
	h := &tar.Header{
		Name: strings.TrimPrefix(e.Path, "/"), Mode: e.Mode, Uid: e.UID, Gid: e.GID,
		ModTime: created.UTC().Truncate(time.Second), Format: tar.FormatPAX,
	}
	switch {
	case e.Whiteout:
		h.Name, h.Typeflag, h.Mode = path.Join(path.Dir(h.Name), ".wh."+path.Base(h.Name)), tar.TypeReg, 0
	case e.Kind == basetree.Directory:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case e.Kind == basetree.Symlink:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Link, 0o777
	default:
		h.Typeflag, h.Size = tar.TypeReg, int64(len(e.Content))
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(e.Content)
	return err
}
