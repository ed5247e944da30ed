package ostreerepo

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
)

// Checksum names an object: SHA-256 of its content, with its attributes in front for files.
type Checksum [sha256.Size]byte

// String gives the form that ostree prints.
func (c Checksum) String() string { return hex.EncodeToString(c[:]) }

// ParseChecksum reads 64 hexadecimal digits.
func ParseChecksum(s string) (c Checksum, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(c) {
		return c, fmt.Errorf("read checksum %q: not 64 hexadecimal digits", s)
	}
	copy(c[:], raw)
	return c, nil
}

// Kinds of objects, as the ends of their files' names. Source: libostree, ostree-core.c.
const (
	kindFile   = "file"
	kindTree   = "dirtree"
	kindMeta   = "dirmeta"
	kindCommit = "commit"
)

// Attributes are what ostree keeps of a file or directory beside its content.
type Attributes struct {
	UID, GID uint32
	Mode     uint32 // as in struct stat: type and permissions
	Xattrs   map[string]string
}

func (a Attributes) xattrs() []byte {
	names := make([]string, 0, len(a.Xattrs))
	for name := range a.Xattrs {
		names = append(names, name)
	}
	sort.Strings(names)
	elements := make([][]byte, 0, len(names))
	for _, name := range names {
		elements = append(elements, tuple(member{data: text(name)}, member{data: []byte(a.Xattrs[name])}))
	}
	return array(1, elements...)
}

// dirMeta is a directory's attributes: (uuua(ayay)).
func (a Attributes) dirMeta() []byte {
	var b []byte
	for _, v := range []uint32{a.UID, a.GID, a.Mode} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, a.xattrs()...)
}

// fileHeader is what a file's checksum covers before the content: the size and (uuuusa(ayay)).
func (a Attributes) fileHeader(target string) []byte {
	var numbers []byte
	for _, v := range []uint32{a.UID, a.GID, a.Mode, 0} {
		numbers = binary.BigEndian.AppendUint32(numbers, v)
	}
	header := tuple(member{data: numbers, fixed: true}, member{data: text(target)}, member{data: a.xattrs()})
	b := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
	return append(append(b, 0, 0, 0, 0), header...)
}

// Commit is what of a commit object matters here.
type Commit struct {
	Metadata  map[string]string // values of type string
	Bootable  bool              // writes ostree.bootable as a boolean
	Timestamp uint64            // seconds since 1970
	Tree      Checksum
	Meta      Checksum
}

// marshal gives (a{sv}aya(say)sstayay), without parent and subject.
func (c Commit) marshal() []byte {
	values := map[string][]byte{}
	for key, value := range c.Metadata {
		values[key] = append(text(value), 0, 's')
	}
	if c.Bootable {
		values["ostree.bootable"] = []byte{1, 0, 'b'}
	}
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	entries := make([][]byte, 0, len(keys))
	for _, key := range keys {
		entries = append(entries, tuple(member{data: text(key)}, member{data: values[key], align: 8}))
	}
	return tuple(member{data: array(8, entries...)}, member{}, member{}, member{data: text("")}, member{data: text("")},
		member{data: binary.BigEndian.AppendUint64(nil, c.Timestamp), align: 8, fixed: true}, member{data: c.Tree[:]},
		member{data: c.Meta[:]})
}

func parseCommit(b []byte) (Commit, error) {
	c := Commit{Metadata: map[string]string{}}
	width := offsetWidth(len(b))
	metadataEnd, err1 := offset(b, 1)
	bodyEnd, err2 := offset(b, 5)
	treeEnd, err3 := offset(b, 6)
	time := (bodyEnd + 7) / 8 * 8
	last := len(b) - 6*width
	if err1 != nil || err2 != nil || err3 != nil || treeEnd != time+8+len(c.Tree) || last != treeEnd+len(c.Meta) {
		return c, fmt.Errorf("read commit: %w", errForm)
	}
	c.Timestamp = binary.BigEndian.Uint64(b[time:])
	copy(c.Tree[:], b[time+8:])
	copy(c.Meta[:], b[treeEnd:])
	entries, err := split(b[:metadataEnd], 8)
	if err != nil {
		return c, fmt.Errorf("read commit metadata: %w", err)
	}
	for _, e := range entries {
		keyEnd, err := offset(e, 1)
		if err != nil || keyEnd == 0 {
			return c, fmt.Errorf("read commit metadata: %w", errForm)
		}
		start, end := (keyEnd+7)/8*8, len(e)-offsetWidth(len(e))
		if start > end {
			return c, fmt.Errorf("read commit metadata: %w", errForm)
		}
		if value, isText := strings.CutSuffix(string(e[start:end]), "\x00s"); isText {
			c.Metadata[string(e[:keyEnd-1])] = strings.TrimSuffix(value, "\x00")
		}
	}
	return c, nil
}

// listing is a directory: a(say) of files and a(sayay) of directories, both sorted by name.
type listing struct {
	files map[string]Checksum
	dirs  map[string][2]Checksum // content and attributes
}

func (l listing) marshal() []byte {
	files := make([][]byte, 0, len(l.files))
	for _, name := range sortedKeys(l.files) {
		sum := l.files[name]
		files = append(files, tuple(member{data: text(name)}, member{data: sum[:]}))
	}
	dirs := make([][]byte, 0, len(l.dirs))
	for _, name := range sortedKeys(l.dirs) {
		sums := l.dirs[name]
		dirs = append(dirs, tuple(member{data: text(name)}, member{data: sums[0][:]}, member{data: sums[1][:]}))
	}
	return tuple(member{data: array(1, files...)}, member{data: array(1, dirs...)})
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func parseListing(b []byte) (listing, error) {
	l := listing{files: map[string]Checksum{}, dirs: map[string][2]Checksum{}}
	halves, err := fields(b, 2)
	if err != nil {
		return l, fmt.Errorf("read directory: %w", err)
	}
	for i, count := range []int{2, 3} {
		elements, err := split(halves[i], 1)
		if err != nil {
			return l, fmt.Errorf("read directory: %w", err)
		}
		for _, e := range elements {
			name, sums, err := parseEntry(e, count)
			if err != nil {
				return l, fmt.Errorf("read directory: %w", err)
			}
			if count == 2 {
				l.files[name] = sums[0]
			} else {
				l.dirs[name] = sums
			}
		}
	}
	return l, nil
}

func parseEntry(b []byte, count int) (name string, sums [2]Checksum, err error) {
	parts, err := fields(b, count)
	if err != nil {
		return "", sums, err
	}
	if name, err = unterminated(parts[0]); err != nil {
		return "", sums, err
	}
	if !validName(name) {
		return "", sums, fmt.Errorf("name %q", name)
	}
	for i, p := range parts[1:] {
		if len(p) != len(sums[i]) {
			return "", sums, errForm
		}
		copy(sums[i][:], p)
	}
	return name, sums, nil
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}
