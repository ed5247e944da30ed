package sbom

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/basetree"
)

// Bills writes the bills of materials of images that a build.Builder has made, for its options.
type Bills struct {
	// Version is that of this program.
	Version string
}

// Write reads the image's layers, without those of its base if it has the base's inventory.
func (b Bills) Write(ctx context.Context, f build.Finished) ([]byte, error) {
	img := Image{Name: f.Name, Digest: f.Digest, BaseDigest: f.BaseDigest, Created: f.Created, Layers: f.Layers,
		BaseLayers: f.BaseLayers, Inventory: f.Inventory}
	contents, err := Read(ctx, img, "")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := WriteSPDX(&out, img, contents, b.Version); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Take begins the inventory of a base. It has a directory for temporary files until it is closed.
func (b Bills) Take(base []basetree.Layer) (build.Inventory, error) {
	dir, err := os.MkdirTemp("", "sbom-")
	if err != nil {
		return nil, fmt.Errorf("list what the base contains: %w", err)
	}
	in := &inventory{c: newCollector(dir, len(base)), base: base, read: make([]layerFiles, len(base))}
	for i := range in.read {
		in.read[i] = newLayerFiles()
	}
	return in, nil
}

// inventory collects what is known of a base while somebody else reads its layers. What goes wrong stops only the
// inventory.
type inventory struct {
	c    *collector
	base []basetree.Layer
	read []layerFiles

	mu  sync.Mutex
	err error
}

func (in *inventory) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err = cmp.Or(in.err, err)
}

// Copy lets the inventory have the package databases.
func (in *inventory) Copy(layer int, p string, h *tar.Header) io.WriteCloser {
	_, copied, err := in.c.note(&in.read[layer], layer, p, h)
	if err != nil {
		in.fail(fmt.Errorf("layer %d: %w", layer+1, err))
	}
	if copied == nil {
		return nil
	}
	return lenient{copied, in}
}

// lenient is a file whose errors are the inventory's.
type lenient struct {
	f  *os.File
	in *inventory
}

func (l lenient) Write(p []byte) (int, error) {
	if _, err := l.f.Write(p); err != nil {
		l.in.fail(err)
	}
	return len(p), nil
}

func (l lenient) Close() error {
	if err := l.f.Close(); err != nil {
		l.in.fail(err)
	}
	return nil
}

// listed is the encoded form of an inventory.
type listed struct {
	Kernels   []string                  `json:"kernels"`
	Releases  map[string][]byte         `json:"releases"`
	Databases map[string]listedDatabase `json:"databases"`
}

// listedDatabase is a package database that was read, or has a form that cannot be read.
type listedDatabase struct {
	Layer    int       `json:"layer"`
	Packages []Package `json:"packages"`
}

// Encode reads the package databases.
func (in *inventory) Encode(ctx context.Context) ([]byte, error) {
	if in.err != nil {
		return nil, in.err
	}
	for _, l := range in.read {
		in.c.seen.lay(l)
	}
	if err := in.c.fetchLinked(ctx, in.base); err != nil {
		return nil, err
	}
	out := listed{Kernels: slices.Sorted(maps.Keys(in.c.seen.kernels)), Releases: map[string][]byte{},
		Databases: map[string]listedDatabase{}}
	kept := in.c.seen.kept
	for p, k := range kept {
		var err error
		switch {
		case !k.has():
		case isRelease(p):
			out.Releases[p], err = k.text()
		case !strings.HasSuffix(p, walEnd):
			d := listedDatabase{Layer: k.layer}
			d.Packages, err = readDatabase(ctx, p, kept)
			out.Databases[p] = d
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return json.Marshal(out)
}

// Close removes the temporary files.
func (in *inventory) Close() error { return os.RemoveAll(in.c.dir) }

// layBase gives the collector what an inventory says, in the place of the base's layers.
func (c *collector) layBase(encoded []byte) error {
	var in listed
	if err := json.Unmarshal(encoded, &in); err != nil {
		return fmt.Errorf("read the inventory of the base: %w", err)
	}
	for _, p := range in.Kernels {
		c.seen.kernels[p] = true
	}
	for p, text := range in.Releases {
		c.seen.kept[p] = kept{content: text, known: true}
	}
	for p, d := range in.Databases {
		c.seen.kept[p] = kept{layer: d.Layer, packages: d.Packages, known: true}
	}
	return nil
}
