package baseimage

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// writeLayout writes an OCI layout with one image, named latest, into dir.
func writeLayout(dir string, labels map[string]string, layers []*layer) error {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return err
	}
	platform := ispec.Platform{Architecture: runtime.GOARCH, OS: "linux"}
	image := ispec.Image{Platform: platform, Created: &epoch, RootFS: ispec.RootFS{Type: "layers"}}
	image.Config = ispec.ImageConfig{Labels: labels,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"}, Cmd: []string{"/sbin/init"}}
	manifest := ispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ispec.MediaTypeImageManifest}
	for _, l := range layers {
		desc, diff, err := writeLayerBlob(dir, l)
		if err != nil {
			return fmt.Errorf("write layer %q: %w", l.comment, err)
		}
		manifest.Layers = append(manifest.Layers, desc)
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, diff)
		image.History = append(image.History, ispec.History{Created: &epoch, CreatedBy: l.comment})
	}
	var err error
	if manifest.Config, err = writeJSONBlob(dir, ispec.MediaTypeImageConfig, image); err != nil {
		return err
	}
	desc, err := writeJSONBlob(dir, ispec.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	desc.Platform = &platform
	desc.Annotations = map[string]string{ispec.AnnotationRefName: "latest"}
	index := ispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ispec.MediaTypeImageIndex,
		Manifests: []ispec.Descriptor{desc}}
	if err := writeJSON(filepath.Join(dir, ispec.ImageIndexFile), index); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, ispec.ImageLayoutFile), ispec.ImageLayout{Version: ispec.ImageLayoutVersion})
}

// Digest is the manifest digest of the one image in an OCI layout: the image's identity.
func Digest(layout string) (digest.Digest, error) {
	raw, err := os.ReadFile(filepath.Join(layout, ispec.ImageIndexFile))
	if err != nil {
		return "", fmt.Errorf("read base image: %w", err)
	}
	var index ispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return "", fmt.Errorf("read base image %s: %w", layout, err)
	}
	if len(index.Manifests) != 1 {
		return "", fmt.Errorf("read base image %s: want 1 image, have %d", layout, len(index.Manifests))
	}
	return index.Manifests[0].Digest, nil
}

func writeLayerBlob(dir string, l *layer) (ispec.Descriptor, digest.Digest, error) {
	f, err := os.CreateTemp(dir, "layer-")
	if err != nil {
		return ispec.Descriptor{}, "", err
	}
	defer f.Close()
	packed, plain, size := digest.Canonical.Digester(), digest.Canonical.Digester(), &counter{}
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, packed.Hash(), size), gzip.BestSpeed)
	if err != nil {
		return ispec.Descriptor{}, "", err
	}
	if err := l.write(io.MultiWriter(z, plain.Hash())); err != nil {
		return ispec.Descriptor{}, "", err
	}
	if err := z.Close(); err != nil {
		return ispec.Descriptor{}, "", err
	}
	if err := f.Chmod(0o644); err != nil {
		return ispec.Descriptor{}, "", err
	}
	desc := ispec.Descriptor{MediaType: ispec.MediaTypeImageLayerGzip, Digest: packed.Digest(), Size: size.n}
	return desc, plain.Digest(), os.Rename(f.Name(), blobPath(dir, desc.Digest))
}

func writeJSONBlob(dir, mediaType string, v any) (ispec.Descriptor, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return ispec.Descriptor{}, err
	}
	desc := ispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	return desc, os.WriteFile(blobPath(dir, desc.Digest), raw, 0o644)
}

func writeJSON(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}

func blobPath(dir string, d digest.Digest) string {
	return filepath.Join(dir, "blobs", d.Algorithm().String(), d.Encoded())
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
