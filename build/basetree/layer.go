package basetree

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	// maxContent is the largest file that is kept, in bytes: a host's CA bundle has about 250 KiB, all others
	// far less.
	maxContent = 1 << 20
	// objects is where an image made from an ostree commit keeps its files and symbolic links, each once; all paths but
	// directories and empty files are hard links to these, which follow in the same layer. Source: ostree-ext,
	// tar/export.rs.
	objects = "/sysroot/ostree/repo/objects/"
	// objectSuffix ends the names of files and symbolic links; other objects are ostree's own records.
	objectSuffix = ".file"
)

// change is one entry of a layer, in the layer's order.
type change struct {
	path    string
	entry   Entry
	content []byte
	hard    string // target of a hard link
}

// changes is what a layer does to the tree below it.
type changes struct {
	// gone are paths that it takes away with all that lies below; with the value false it only empties the directory.
	gone map[string]bool
	list []change
	// objects are those of an ostree repository, and dangling the paths that link to one which this layer lacks, by its
	// path.
	objects  map[string]bool
	dangling map[string]string
}

// layerReader collects the changes of a layer.
type layerReader struct {
	out    changes
	budget *budget
	// links are the texts of objects that are symbolic links, large are objects whose content is not kept.
	links map[string]string
	large map[string]bool
	pool  pool
	// lacking are indexes of changes whose content stood before them and is no longer known, by the path that has it.
	lacking map[string][]int
}

// Copy says where the bytes of a file go, too, while the layers of a tree are read; nil is nowhere. layer counts from
// 0, p is the path on a booted host. It is called for each entry, of several layers at the same time, of one of them in
// its order. An error of the writer ends the reading.
type Copy func(layer int, p string, h *tar.Header) io.WriteCloser

// entry takes an entry of a layer, by the path on a booted host.
type entry func(p string, h *tar.Header, body io.Reader) error

// copying wraps take: what it reads of a file also goes to the writer that c gives for the file.
func (c Copy) copying(layer int, take entry) entry {
	return func(p string, h *tar.Header, body io.Reader) error {
		w := c(layer, p, h)
		if w == nil {
			return take(p, h, body)
		}
		both := io.TeeReader(body, w)
		err := take(p, h, both)
		if err == nil {
			_, err = io.Copy(io.Discard, both) // the part that take did not read
		}
		return cmp.Or(err, w.Close())
	}
}

func readLayer(ctx context.Context, open Layer, b *budget, i int, also Copy) (*changes, error) {
	r := layerReader{out: changes{gone: map[string]bool{}, objects: map[string]bool{}, dangling: map[string]string{}},
		budget: b, links: map[string]string{},
		large: map[string]bool{}, lacking: map[string][]int{}}
	first := entry(r.add)
	if also != nil {
		first = also.copying(i, first)
	}
	if err := Walk(ctx, open, first); err != nil {
		return nil, err
	}
	if len(r.lacking) > 0 {
		if err := Walk(ctx, open, r.fill); err != nil {
			return nil, fmt.Errorf("read again: %w", err)
		}
	}
	return &r.out, nil
}

// Walk gives each the entries of a layer, by the path on a booted host.
func Walk(ctx context.Context, open Layer, each func(p string, h *tar.Header, body io.Reader) error) error {
	blob, err := open(ctx)
	if err != nil {
		return err
	}
	defer blob.Close()
	plain, err := decompress(blob)
	if err != nil {
		return err
	}
	defer plain.Close()
	reader := tar.NewReader(plain)
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		header, err := reader.Next()
		if errors.Is(err, io.EOF) { // of the tar file: who checks a digest says so at the end of the blob
			_, err = io.Copy(io.Discard, plain)
			return err
		}
		if err != nil {
			return err
		}
		if err := each(Canonical(header.Name), header, reader); err != nil {
			return fmt.Errorf("entry %q: %w", header.Name, err)
		}
	}
}

// add takes an entry as it comes in the layer.
func (r *layerReader) add(p string, h *tar.Header, body io.Reader) (err error) {
	if err := r.budget.take(len(p), len(h.Linkname)); err != nil {
		return err
	}
	if strings.HasPrefix(p, objects) {
		return r.object(p, h, body)
	}
	base := path.Base(p)
	if base == whiteoutOpaque {
		r.out.gone[path.Dir(p)] = r.out.gone[path.Dir(p)]
		return nil
	}
	if name, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%w: a whiteout that names no file", ErrUnsafe)
		}
		r.out.gone[path.Join(path.Dir(p), name)] = true
		return nil
	}
	c := change{path: p, entry: Entry{Kind: Other, Mode: h.Mode & 0o7777, UID: h.Uid, GID: h.Gid}}
	switch h.Typeflag {
	case tar.TypeDir:
		c.entry.Kind = Directory
	case tar.TypeSymlink:
		c.entry.Kind, c.entry.Link = Symlink, h.Linkname
	case tar.TypeLink:
		err = r.hardLink(&c, Canonical(h.Linkname))
	case tar.TypeReg:
		c.entry.Kind = Regular
		if keepContent(p) && h.Size <= maxContent {
			c.content, err = r.keep(h, body)
		}
	}
	r.out.list = append(r.out.list, c)
	return err
}

// object takes an object of an ostree repository, which is no path of the host itself.
func (r *layerReader) object(p string, h *tar.Header, body io.Reader) error {
	r.out.objects[p] = true
	switch {
	case !strings.HasSuffix(p, objectSuffix):
	case h.Typeflag == tar.TypeSymlink:
		r.links[p] = h.Linkname
	case h.Typeflag == tar.TypeReg && h.Size > maxContent:
		r.large[p] = true
	case h.Typeflag == tar.TypeReg:
		content, err := contentOf(h, body)
		if err != nil {
			return err
		}
		r.pool.put(p, content)
	}
	return nil
}

// hardLink makes c what it is a link to. A link to a path that is no object is followed when the layer is laid over the
// tree.
func (r *layerReader) hardLink(c *change, target string) error {
	c.entry.Kind = Regular
	if text, ok := r.links[target]; ok {
		c.entry.Kind, c.entry.Link = Symlink, text
		return nil
	}
	if !strings.HasPrefix(target, objects) {
		c.hard = target
	} else if !r.out.objects[target] {
		r.out.dangling[target] = c.path
	}
	if !keepContent(c.path) || keepContent(target) || r.large[target] {
		return nil
	}
	content, ok := r.pool.contents[target]
	if !ok {
		r.lacking[target] = append(r.lacking[target], len(r.out.list))
		return nil
	}
	c.content = content
	return r.budget.take(len(content))
}

// fill takes the contents that are lacking from a second reading.
func (r *layerReader) fill(p string, h *tar.Header, body io.Reader) error {
	wanted := r.lacking[p]
	if len(wanted) == 0 || h.Typeflag != tar.TypeReg || h.Size > maxContent {
		return nil
	}
	content, err := r.keep(h, body)
	for _, i := range wanted {
		r.out.list[i].content = content
	}
	return err
}

// keep reads a content that is held until the tree is there.
func (r *layerReader) keep(h *tar.Header, body io.Reader) ([]byte, error) {
	if err := r.budget.take(int(h.Size)); err != nil {
		return nil, err
	}
	return contentOf(h, body)
}

func contentOf(h *tar.Header, body io.Reader) ([]byte, error) {
	content := make([]byte, h.Size)
	_, err := io.ReadFull(body, content)
	return content, err
}

const (
	// maxPooled bounds the objects whose contents are held while a layer is read, in bytes. Links follow their object at
	// once in what ostree-ext writes now; where one comes later than this, the layer is read twice.
	maxPooled = 4 << 20
	// poolCost is about what an object takes beside its content, in bytes: its name, twice, and its place in the map.
	poolCost = 256
)

// pool holds the contents of the latest objects.
type pool struct {
	contents map[string][]byte
	order    []string
	size     int
}

func (p *pool) put(name string, content []byte) {
	if p.contents == nil {
		p.contents = map[string][]byte{}
	}
	if _, ok := p.contents[name]; ok {
		return
	}
	p.contents[name], p.order = content, append(p.order, name)
	for p.size += len(content) + poolCost; p.size > maxPooled; p.order = p.order[1:] {
		p.size -= len(p.contents[p.order[0]]) + poolCost
		delete(p.contents, p.order[0])
	}
}

// Canonical is the path on a booted host: an image made from an ostree commit may keep /etc in usr/etc.
func Canonical(name string) string {
	p := path.Clean("/" + name)
	if p == "/usr/etc" {
		return "/etc"
	}
	if rest, ok := strings.CutPrefix(p, "/usr/etc/"); ok {
		return "/etc/" + rest
	}
	return p
}

// keepContent selects what a config compiler reads: /etc, the vendor's units and kernel arguments, and the accounts of
// an ostree system.
func keepContent(p string) bool {
	for _, prefix := range []string{"/etc/", "/usr/lib/systemd/system/", "/lib/systemd/system/", "/usr/lib/ostree/",
		"/usr/lib/bootc/kargs.d/"} {
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
