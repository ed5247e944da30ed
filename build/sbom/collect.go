package sbom

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // SPDX 2.3 (8.4) demands SHA1 of files, beside SHA256
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/build/basetree"
)

const (
	// maxKept bounds a file that is copied out of the image, in bytes: the package database of a large RHEL host has 200
	// MiB.
	maxKept     = 1 << 30
	modulesDir  = "/usr/lib/modules"
	whiteout    = ".wh."
	opaque      = ".wh..wh..opq"
	ostreeFiles = "/sysroot/ostree/"
)

// kept is a file whose bytes are needed: a package database or os-release.
type kept struct {
	layer int
	copy  string // where the bytes are on this host
	link  string // what it is a hard link to, until its bytes are fetched in a second reading

	known    bool // from an inventory, with the content of os-release or the packages of a database
	content  []byte
	packages []Package
}

func (k kept) has() bool { return k.known || k.copy != "" }

// text is that of os-release.
func (k kept) text() ([]byte, error) {
	if k.known || k.copy == "" {
		return k.content, nil
	}
	return os.ReadFile(k.copy)
}

// layerFiles is what the layers up to one of them have, or what one of them brings.
type layerFiles struct {
	files   map[string]File
	kept    map[string]kept
	kernels map[string]bool
	// gone are paths that the layer takes away with all that lies below; with the value false only what lies below.
	gone map[string]bool
}

func newLayerFiles() layerFiles {
	return layerFiles{files: map[string]File{}, kept: map[string]kept{}, kernels: map[string]bool{},
		gone: map[string]bool{}}
}

// lay puts a layer over those below it.
func (l *layerFiles) lay(over layerFiles) {
	drop := func(p string) bool { return over.covers(p) }
	for p, f := range over.files {
		if of, ok := l.files[f.below]; ok && f.below != "" {
			of.Path = p
			over.files[p] = of
		}
	}
	maps.DeleteFunc(l.files, func(p string, _ File) bool { return drop(p) })
	maps.DeleteFunc(l.kept, func(p string, _ kept) bool { return drop(p) })
	maps.DeleteFunc(l.kernels, func(p string, _ bool) bool { return drop(p) })
	maps.Copy(l.files, over.files)
	maps.Copy(l.kept, over.kept)
	maps.Copy(l.kernels, over.kernels)
}

// covers says whether the layer hides a path of those below.
func (l *layerFiles) covers(p string) bool {
	if l.gone[p] {
		return true
	}
	for dir := path.Dir(p); len(dir) > 1; dir = path.Dir(dir) {
		if _, ok := l.gone[dir]; ok {
			return true
		}
	}
	_, all := l.gone["/"]
	return all
}

// collector reads an image layer by layer, bottom first.
type collector struct {
	dir   string
	base  int
	all   bool // hold and hash the base's files too
	files atomic.Int64
	seen  layerFiles
}

func newCollector(dir string, base int) *collector {
	return &collector{dir: dir, base: base, seen: newLayerFiles()}
}

// collect reads the layers of an image. A journal of rpm's above a base whose database is known by its packages only
// needs that database itself.
func (c *collector) collect(ctx context.Context, img Image) error {
	if len(img.Inventory) == 0 || c.all {
		return c.layers(ctx, img.Layers, 0)
	}
	if err := c.layBase(img.Inventory); err != nil {
		return err
	}
	if err := c.layers(ctx, img.Layers, img.BaseLayers); err != nil {
		return err
	}
	for p := range c.seen.kept {
		if db, ok := strings.CutSuffix(p, walEnd); ok && c.seen.kept[db].known {
			c.seen = newLayerFiles()
			return c.layers(ctx, img.Layers, 0)
		}
	}
	return nil
}

// layers reads as many layers at once as there are processors, and lays them over each other and over those below from.
func (c *collector) layers(ctx context.Context, layers []basetree.Layer, from int) error {
	read := make([]layerFiles, len(layers)-from)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, layer := range layers[from:] {
		i += from
		g.Go(func() (err error) {
			if read[i-from], err = c.layer(ctx, i, layer); err != nil {
				return fmt.Errorf("layer %d: %w", i+1, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, l := range read {
		c.seen.lay(l)
	}
	return nil
}

func (c *collector) layer(ctx context.Context, i int, layer basetree.Layer) (layerFiles, error) {
	l := newLayerFiles()
	err := basetree.Walk(ctx, layer, func(p string, h *tar.Header, body io.Reader) error {
		isFile, copied, err := c.note(&l, i, p, h)
		if err != nil {
			return err
		}
		if copied != nil {
			body = io.TeeReader(body, copied)
		}
		if isFile && (i >= c.base || c.all) {
			l.files[p], err = c.file(&l, p, h, body)
		}
		if copied == nil {
			return err
		}
		if err == nil {
			_, err = io.Copy(io.Discard, body)
		}
		return cmp.Or(err, copied.Close())
	})
	return l, err
}

// note takes an entry of a layer and says whether it is a file or link of the host. Where its bytes are needed it gives
// a file for them.
func (c *collector) note(l *layerFiles, layer int, p string, h *tar.Header) (isFile bool, _ *os.File, _ error) {
	name := path.Base(p)
	switch {
	case strings.HasPrefix(p, ostreeFiles), h.Typeflag == tar.TypeDir:
		return false, nil, nil
	case name == opaque:
		l.gone[path.Dir(p)] = l.gone[path.Dir(p)]
		return false, nil, nil
	case strings.HasPrefix(name, whiteout):
		l.gone[path.Join(path.Dir(p), strings.TrimPrefix(name, whiteout))] = true
		return false, nil, nil
	}
	if c.files.Add(1) > maxFiles {
		return false, nil, fmt.Errorf("%w: more than %d files", errTooLarge, maxFiles)
	}
	l.gone[p] = true
	if name == "vmlinuz" && path.Dir(path.Dir(p)) == modulesDir {
		l.kernels[p] = true
	}
	switch wanted := isDatabase(p) || isRelease(p); {
	case wanted && h.Typeflag == tar.TypeLink:
		l.kept[p] = kept{layer: layer, link: basetree.Canonical(h.Linkname)}
	case wanted && h.Typeflag == tar.TypeReg:
		f, err := c.create(h)
		if err != nil {
			return true, nil, err
		}
		l.kept[p] = kept{layer: layer, copy: f.Name()}
		return true, f, nil
	}
	return true, nil, nil
}

// create makes a temporary file for the bytes of a file of the image.
func (c *collector) create(h *tar.Header) (*os.File, error) {
	if h.Size > maxKept {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are read", errTooLarge, h.Name, h.Size, maxKept)
	}
	return os.CreateTemp(c.dir, "kept-")
}

// file is a file or link with its owner.
func (c *collector) file(l *layerFiles, p string, h *tar.Header, body io.Reader) (File, error) {
	f := File{Path: p, Mode: h.Mode & 0o7777, UID: h.Uid, GID: h.Gid, Size: h.Size}
	switch h.Typeflag {
	case tar.TypeSymlink:
		f.Link = h.Linkname
	case tar.TypeLink:
		target := basetree.Canonical(h.Linkname)
		if of, ok := l.files[target]; ok {
			f, f.Path = of, p
		} else {
			f.content, f.below = target, target // that of an ostree object is its checksum
		}
	case tar.TypeReg:
		one, two := sha1.New(), sha256.New() //nolint:gosec // see the import
		if _, err := io.Copy(io.MultiWriter(one, two), body); err != nil {
			return f, err
		}
		f.content = hex.EncodeToString(two.Sum(nil))
		if f.Mode&0o004 != 0 {
			f.SHA1, f.SHA256 = hex.EncodeToString(one.Sum(nil)), f.content
		}
	}
	return f, nil
}

// fetchLinked copies the files that are links: their bytes are in an object of the same layer, or of one below.
func (c *collector) fetchLinked(ctx context.Context, layers []basetree.Layer) error {
	for p, k := range c.seen.kept {
		for at := k.layer; at >= 0 && k.link != "" && k.copy == ""; at-- {
			err := basetree.Walk(ctx, layers[at], func(q string, h *tar.Header, body io.Reader) error {
				if q != k.link || h.Typeflag != tar.TypeReg {
					return nil
				}
				f, err := c.create(h)
				if err != nil {
					return err
				}
				k.copy = f.Name()
				_, err = io.Copy(f, body)
				return cmp.Or(err, f.Close())
			})
			if err != nil {
				return err
			}
		}
		c.seen.kept[p] = k
	}
	return nil
}

// added are the files above the base, by path.
func (c *collector) added() []File {
	out := []File{}
	for _, p := range slices.Sorted(maps.Keys(c.seen.files)) {
		if !c.all {
			out = append(out, c.seen.files[p])
		}
	}
	return out
}

func (c *collector) kernelNames() []string {
	out := []string{}
	for _, p := range slices.Sorted(maps.Keys(c.seen.kernels)) {
		out = append(out, path.Base(path.Dir(p)))
	}
	return out
}

// isRelease knows os-release(5).
func isRelease(p string) bool { return p == "/usr/lib/os-release" || p == "/etc/os-release" }

// release is the text of os-release, of which /etc's counts first.
func (c *collector) release() ([]byte, error) {
	for _, p := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if k := c.seen.kept[p]; k.has() {
			return k.text()
		}
	}
	return nil, nil
}
