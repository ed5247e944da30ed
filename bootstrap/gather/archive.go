package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// archive writes scrubbed, bounded files into a tar.gz. What does not fit is noted and left out: a bundle with a hole
// is better than none.
type archive struct {
	zip    *gzip.Writer
	tar    *tar.Writer
	prefix string
	now    time.Time
	scrub  *scrubber
	mask   masker

	left  int64
	files map[string]bool
	notes bytes.Buffer
	full  bool
}

func newArchive(w io.Writer, o Options, s *scrubber) *archive {
	zip := gzip.NewWriter(w)
	return &archive{zip: zip, tar: tar.NewWriter(zip), prefix: "log-bundle-" + o.ID, now: o.Now(), scrub: s,
		mask: newMasker(), left: o.MaxTotal, files: map[string]bool{}}
}

// note adds a line to the bundle's gather.log.
func (a *archive) note(format string, args ...any) {
	fmt.Fprintf(&a.notes, "%s %s\n", a.now.UTC().Format(time.RFC3339), a.scrub.text(fmt.Sprintf(format, args...)))
}

// add writes one file after taking the secrets out of it. Only a failing writer is an error.
func (a *archive) add(name string, content []byte) error {
	content = a.scrub.bytes(content)
	name = path.Clean(a.scrub.text(name))
	switch {
	case a.files[name]:
		a.note("%s: left out: there is another file of this name", name)
		return nil
	case len(a.files) >= maxFiles || int64(len(content)) > a.left:
		if !a.full {
			a.note("%s: left out, and what follows may be, too: the bundle is full", name)
		}
		a.full = true
		return nil
	}
	a.files[name] = true
	a.left -= int64(len(content))
	return a.put(name, content)
}

func (a *archive) put(name string, content []byte) error {
	// Mode 0600: who gathers decides who reads.
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(a.prefix, name), Size: int64(len(content)), Mode: 0o600,
		ModTime: a.now, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s into the bundle: %w", name, err)
	}
	if _, err := a.tar.Write(content); err != nil {
		return fmt.Errorf("write %s into the bundle: %w", name, err)
	}
	return nil
}

// close adds gather.log and ends the file.
func (a *archive) close() error {
	a.note("%d files gathered", len(a.files))
	err := a.put("gather.log", a.notes.Bytes())
	return errors.Join(err, a.tar.Close(), a.zip.Close())
}
