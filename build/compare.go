package build

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"dayone.dev/dayone/build/appendengine"
)

// Difference is one thing in which two images differ.
type Difference struct {
	// Layer counts from 0; -1 is the image's configuration.
	Layer int `json:"layer"`
	// CreatedBy is the instruction that made the layer.
	CreatedBy string `json:"createdBy,omitempty"`
	// Path is a file in the layer.
	Path string `json:"path,omitempty"`
	// What differs: content, mode, owner, time, type, link, or which image alone has it.
	What string `json:"what"`
}

// Compare reports in what two images of the registry differ, layer by layer and path by path. Equal images have no
// differences.
func Compare(ctx context.Context, access Access, platform, first, second string) ([]Difference, error) {
	client, err := appendengine.NewClient(appendengine.Access{CAFile: access.CAFile, AuthFile: access.AuthFile})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	a, err := client.Read(ctx, first, platform)
	if err != nil {
		return nil, err
	}
	b, err := client.Read(ctx, second, platform)
	if err != nil {
		return nil, err
	}
	if a.Ref.DigestStr() == b.Ref.DigestStr() {
		return nil, nil
	}
	if len(a.Manifest.Layers) != len(b.Manifest.Layers) {
		return []Difference{{Layer: -1, What: fmt.Sprintf("number of layers: %d and %d", len(a.Manifest.Layers),
			len(b.Manifest.Layers))}}, nil
	}
	var out []Difference
	for i := range a.Manifest.Layers {
		if a.Manifest.Layers[i].Digest == b.Manifest.Layers[i].Digest {
			continue
		}
		list, err := compareLayer(ctx, a, b, i)
		if err != nil {
			return nil, fmt.Errorf("compare layer %d: %w", i, err)
		}
		out = append(out, list...)
	}
	if len(out) == 0 {
		out = append(out, Difference{Layer: -1, What: "configuration or manifest"})
	}
	return out, nil
}

func compareLayer(ctx context.Context, a, b *appendengine.Image, i int) ([]Difference, error) {
	one, err := layerFiles(ctx, a, i)
	if err != nil {
		return nil, err
	}
	two, err := layerFiles(ctx, b, i)
	if err != nil {
		return nil, err
	}
	by := createdBy(a, i)
	var out []Difference
	names := maps.Clone(one)
	maps.Copy(names, two)
	for _, p := range slices.Sorted(maps.Keys(names)) {
		x, inFirst := one[p]
		y, inSecond := two[p]
		switch {
		case !inSecond:
			out = append(out, Difference{i, by, p, "only in the first build"})
		case !inFirst:
			out = append(out, Difference{i, by, p, "only in the second build"})
		case x != y:
			out = append(out, Difference{i, by, p, x.differs(y)})
		}
	}
	if len(out) == 0 {
		out = append(out, Difference{Layer: i, CreatedBy: by, What: "order or packing of the same files"})
	}
	return out, nil
}

// fileState is what a tar entry says of a file.
type fileState struct {
	kind     byte
	mode     int64
	uid, gid int
	link     string
	time     time.Time
	sum      string
}

// differs names the properties that differ.
func (f fileState) differs(o fileState) string {
	var list []string
	for _, p := range []struct {
		name string
		same bool
	}{{"content", f.sum == o.sum}, {"link", f.link == o.link}, {"mode", f.mode == o.mode},
		{"owner", f.uid == o.uid && f.gid == o.gid}, {"time", f.time.Equal(o.time)}, {"type", f.kind == o.kind}} {
		if !p.same {
			list = append(list, p.name)
		}
	}
	return strings.Join(list, ", ")
}

func layerFiles(ctx context.Context, image *appendengine.Image, i int) (map[string]fileState, error) {
	layers, err := image.Layers(i)
	if err != nil {
		return nil, err
	}
	blob, err := layers[0](ctx)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	plain, err := gzip.NewReader(blob)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	out := map[string]fileState{}
	for reader := tar.NewReader(plain); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, reader); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", h.Name, err)
		}
		out["/"+strings.Trim(h.Name, "/")] = fileState{h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname, h.ModTime,
			hex.EncodeToString(sum.Sum(nil))}
	}
}

// createdBy finds the history entry of a layer.
func createdBy(image *appendengine.Image, layer int) string {
	for _, h := range image.Config.History {
		if h.EmptyLayer {
			continue
		}
		if layer == 0 {
			return h.CreatedBy
		}
		layer--
	}
	return ""
}
