package standin

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
	goprogram "dayone.dev/dayone/hack/program"
)

// ImageOptions name a base image that is to get stand-ins.
type ImageOptions struct {
	// Base is the directory of an OCI layout, as baseimage.Ensure gives it.
	Base string
	// Programs that /usr/bin gets; each is one of Programs.
	Programs []string
	// CacheDir keeps the result; default cache.Dir().
	CacheDir string
}

// Image gives the OCI layout of the base with one more layer, which has the stand-ins; it is made once for each base,
// choice and build.
func Image(ctx context.Context, o ImageOptions) (string, error) {
	if o.CacheDir == "" {
		dir, err := cache.Dir()
		if err != nil {
			return "", err
		}
		o.CacheDir = dir
	}
	for _, p := range o.Programs {
		if !slices.Contains(Programs(), p) {
			return "", fmt.Errorf("make image with stand-ins: no stand-in for %q", p)
		}
	}
	program, err := build(ctx)
	if err != nil {
		return "", err
	}
	base, err := baseimage.Digest(o.Base)
	if err != nil {
		return "", err
	}
	key := digest.FromString(strings.Join(append([]string{"1", base.String(), digest.FromBytes(program).String()},
		o.Programs...), "\n"))
	store := cache.Store{Dir: filepath.Join(o.CacheDir, "baseimage")}
	return store.Ensure(ctx, "standin-"+key.Encoded()[:16], func(dir string) error { return derive(dir, program, o) })
}

// build links the program.
func build(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "dayone-standin-")
	if err != nil {
		return nil, fmt.Errorf("build stand-in: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "standin")
	o := goprogram.Options{Package: "dayone.dev/dayone/hack/testnode/standin/cmd/standin"}
	if err := goprogram.Build(ctx, "", o, path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func derive(dir string, program []byte, o ImageOptions) error {
	base, err := read(o.Base)
	if err != nil {
		return err
	}
	layer, err := programLayer(program, o.Programs)
	if err != nil {
		return err
	}
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "stand-ins for " +
		strings.Join(o.Programs, " and ")}})
	if err != nil {
		return fmt.Errorf("make image with stand-ins: %w", err)
	}
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("make image with stand-ins: %w", err)
	}
	return p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "latest"}))
}

func read(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read base image: %w", err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read base image: %w", err)
	}
	return index.Image(list.Manifests[0].Digest)
}

// programLayer has the program once and links to it.
func programLayer(program []byte, names []string) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(h tar.Header, content []byte) error {
		h.ModTime, h.Size = time.Unix(1, 0), int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	for _, d := range []string{"usr/", "usr/bin/", "usr/libexec/"} {
		if err := put(tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755}, nil); err != nil {
			return nil, err
		}
	}
	const path = "usr/libexec/dayone-standin"
	if err := put(tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755}, program); err != nil {
		return nil, err
	}
	for _, n := range names {
		if err := put(tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/" + n, Linkname: "../libexec/dayone-standin",
			Mode: 0o777}, nil); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(1))
}
