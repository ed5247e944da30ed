package basetree

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Layer opens a layer's blob: a tar file, plain or compressed with gzip or zstd.
type Layer func(ctx context.Context) (io.ReadCloser, error)

const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	// maxContent is the largest file that is kept, in bytes: a host's bundle of authorities has about 250 KiB, all others far less.
	maxContent = 1 << 20
	// objects is where an image made from an ostree commit keeps file contents; its files are hard links to these.
	objects = "/sysroot/ostree/repo/objects/"
)

// change is one entry of a layer, in the layer's order.
type change struct {
	path    string
	entry   Entry
	content []byte
	hard    string // target of a hard link
	remove  bool
	opaque  bool
}

// Read builds the tree of an image from its layers, bottom first. Layers are read in parallel, as many as there are processors.
func Read(ctx context.Context, layers []Layer) (*Tree, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make([][]change, len(layers))
	errs := make([]error, len(layers))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i, layer := range layers {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if changes[i], errs[i] = readLayer(ctx, layer); errs[i] != nil {
				errs[i] = fmt.Errorf("read layer %d: %w", i, errs[i])
				cancel()
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tree := &Tree{Entries: map[string]Entry{}, Contents: map[string][]byte{}}
	for _, list := range changes {
		for _, c := range list {
			tree.apply(c)
		}
	}
	return tree, nil
}

func (t *Tree) apply(c change) {
	switch {
	case c.opaque:
		t.drop(c.path, false)
		return
	case c.remove:
		t.drop(c.path, true)
		return
	case c.hard != "":
		target, ok := t.Entries[c.hard]
		if !ok {
			target = c.entry
		}
		c.entry = target
		if c.content == nil {
			c.content = t.Contents[c.hard]
		}
	}
	if c.entry.Kind != Directory && t.replaces(c.path) {
		t.drop(c.path, true)
	}
	delete(t.Contents, c.path)
	t.Entries[c.path] = c.entry
	if c.content != nil && keepContent(c.path) {
		t.Contents[c.path] = c.content
	}
}

func readLayer(ctx context.Context, open Layer) ([]change, error) {
	blob, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	plain, err := decompress(blob)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	var (
		out    []change
		pooled = map[string][]byte{}
		reader = tar.NewReader(plain)
	)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		c, err := readEntry(header, reader, pooled)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", header.Name, err)
		}
		if !strings.HasPrefix(c.path, objects) {
			out = append(out, c)
		}
	}
}

// readEntry turns a tar entry into a change; pooled holds the contents of ostree objects of the same layer.
func readEntry(header *tar.Header, body io.Reader, pooled map[string][]byte) (change, error) {
	p := canonical(header.Name)
	base := path.Base(p)
	if base == whiteoutOpaque {
		return change{path: path.Dir(p), opaque: true}, nil
	}
	if name, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		return change{path: path.Join(path.Dir(p), name), remove: true}, nil
	}
	c := change{path: p, entry: Entry{Mode: header.Mode & 0o7777, UID: header.Uid, GID: header.Gid}}
	switch header.Typeflag {
	case tar.TypeDir:
		c.entry.Kind = Directory
	case tar.TypeSymlink:
		c.entry.Kind, c.entry.Link = Symlink, header.Linkname
	case tar.TypeLink:
		c.entry.Kind, c.hard = Regular, canonical(header.Linkname)
		c.content = pooled[c.hard]
	case tar.TypeReg:
		c.entry.Kind = Regular
		object := strings.HasPrefix(p, objects)
		if header.Size > maxContent || !object && !keepContent(p) {
			return c, nil
		}
		content, err := io.ReadAll(body)
		if err != nil {
			return change{}, err
		}
		if object {
			pooled[p] = content
		} else {
			c.content = content
		}
	default:
		c.entry.Kind = Other
	}
	return c, nil
}

// canonical is the path on a booted host: an image made from an ostree commit may keep /etc in usr/etc.
func canonical(name string) string {
	p := path.Clean("/" + name)
	if p == "/usr/etc" {
		return "/etc"
	}
	if rest, ok := strings.CutPrefix(p, "/usr/etc/"); ok {
		return "/etc/" + rest
	}
	return p
}

// keepContent selects what a config compiler reads: /etc, the vendor's units and kernel arguments, and the accounts of an ostree system.
func keepContent(p string) bool {
	for _, prefix := range []string{"/etc/", "/usr/lib/systemd/system/", "/lib/systemd/system/", "/usr/lib/ostree/", "/usr/lib/bootc/kargs.d/"} {
		if strings.HasPrefix(p, prefix) {
			return true
		}
	}
	return p == "/usr/lib/passwd" || p == "/usr/lib/group" || p == "/usr/lib/os-release"
}

type closer struct {
	io.Reader
	close func()
}

func (c closer) Close() error { c.close(); return nil }

// decompress looks at the first bytes; media types of layers are not to be trusted here.
func decompress(blob io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(blob, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return closer{decoder, decoder.Close}, nil
	default:
		return io.NopCloser(buffered), nil
	}
}

// With gives the tree after further layers, bottom first; the tree itself stays as it is.
func (t *Tree) With(ctx context.Context, layers []Layer) (*Tree, error) {
	out := &Tree{Entries: maps.Clone(t.Entries), Contents: maps.Clone(t.Contents)}
	if out.Entries == nil {
		out.Entries, out.Contents = map[string]Entry{}, map[string][]byte{}
	}
	for i, layer := range layers {
		list, err := readLayer(ctx, layer)
		if err != nil {
			return nil, fmt.Errorf("read layer %d: %w", i, err)
		}
		for _, c := range list {
			out.apply(c)
		}
	}
	return out, nil
}
