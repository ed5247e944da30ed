package baseimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// epoch is every entry's time: the same inputs must give the same bytes. One second past zero, as ostree and rpm treat
// zero as unset.
var epoch = time.Unix(1, 0) //nolint:gochecknoglobals // a constant in all but type

// layer collects files and writes them as one deterministic tar: sorted, parents first, one time for all.
type layer struct {
	comment string
	entries map[string]entry
}

type entry struct {
	header tar.Header
	open   func() (io.ReadCloser, error) // nil when there is no content
}

func newLayer(comment string) *layer {
	return &layer{comment: comment, entries: map[string]entry{}}
}

func (l *layer) dir(name string, mode int64) {
	l.put(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil)
}

func (l *layer) symlink(name, target string) {
	l.put(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

// hardLink is a further name of a file in this layer, whose mode it must repeat: who unpacks it sets that.
func (l *layer) hardLink(name, of string) {
	l.put(tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: of, Mode: l.entries[of].header.Mode}, nil)
}

func (l *layer) file(name string, mode int64, content []byte) {
	l.put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))},
		func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		})
}

// hostFile adds the content of a file of this host, following links.
func (l *layer) hostFile(name, hostPath string, mode int64) error {
	st, err := os.Stat(hostPath)
	if err != nil {
		return fmt.Errorf("add host file: %w", err)
	}
	l.put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: st.Size()}, func() (io.ReadCloser, error) {
		return os.Open(hostPath)
	})
	return nil
}

// put adds an entry and, unless they are there, its parent directories as root's with mode 0755.
func (l *layer) put(h tar.Header, open func() (io.ReadCloser, error)) {
	h.Name = strings.Trim(path.Clean("/"+h.Name), "/")
	for p := path.Dir(h.Name); p != "."; p = path.Dir(p) {
		if _, ok := l.entries[p]; !ok {
			l.entries[p] = entry{header: tar.Header{Typeflag: tar.TypeDir, Name: p, Mode: 0o755}}
		}
	}
	l.entries[h.Name] = entry{header: h, open: open}
}

// copyParents gives the layer's directories the mode and owner they have in below: a later layer's entry replaces them.
func (l *layer) copyParents(below *layer) {
	for name, e := range l.entries {
		if b, ok := below.entries[name]; ok && e.header.Typeflag == tar.TypeDir {
			l.entries[name] = b
		}
	}
}

// write streams the layer as an uncompressed tar.
func (l *layer) write(w io.Writer) error {
	tw := tar.NewWriter(w)
	names := slices.Sorted(maps.Keys(l.entries))
	// A hard link must come after the file it names.
	slices.SortStableFunc(names, func(a, b string) int { return l.rank(a) - l.rank(b) })
	for _, name := range names {
		if err := l.writeEntry(tw, l.entries[name]); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return tw.Close()
}

func (l *layer) rank(name string) int {
	if l.entries[name].header.Typeflag == tar.TypeLink {
		return 1
	}
	return 0
}

func (l *layer) writeEntry(tw *tar.Writer, e entry) error {
	h := e.header
	h.ModTime, h.AccessTime, h.ChangeTime, h.Format = epoch, time.Time{}, time.Time{}, tar.FormatPAX
	h.Uname, h.Gname = "", ""
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if err := tw.WriteHeader(&h); err != nil {
		return err
	}
	if e.open == nil {
		return nil
	}
	r, err := e.open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(tw, r)
	return err
}
