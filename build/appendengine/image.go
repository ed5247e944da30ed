package appendengine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/build/basetree"
)

// Image is an image in a registry, its manifest and configuration read and compared with their digests.
type Image struct {
	// Ref names it by the digest of its own manifest, also when an index was asked for.
	Ref       name.Digest
	MediaType types.MediaType
	Manifest  *v1.Manifest
	Config    *v1.ConfigFile
	rawConfig []byte
	rawManif  []byte
	remote    v1.Image
}

// ErrLost says that the registry has an image's manifest and has lost its configuration.
var ErrLost = errors.New("the registry has lost it")

// Read fetches manifest and configuration of host/repository@digest. Of an index it takes the image for platform
// (os/architecture).
func (c *Client) Read(ctx context.Context, reference, platform string) (*Image, error) {
	ref, err := digestReference(reference)
	if err != nil {
		return nil, err
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, fmt.Errorf("read platform %q: %w", platform, err)
	}
	return c.read(ctx, ref, p)
}

func (c *Client) read(ctx context.Context, ref name.Reference, p *v1.Platform) (*Image, error) {
	img, err := remote.Image(ref, c.options(ctx, p)...)
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", ref, err)
	}
	out := &Image{remote: img}
	if out.MediaType, err = img.MediaType(); err != nil {
		return nil, fmt.Errorf("read image %s: %w", ref, err)
	}
	if out.rawManif, err = img.RawManifest(); err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", ref, err)
	}
	if out.Manifest, err = img.Manifest(); err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", ref, err)
	}
	if out.rawConfig, err = img.RawConfigFile(); StatusOf(err) == http.StatusNotFound {
		return nil, fmt.Errorf("read configuration of %s: %w: %w", ref, ErrLost, err)
	} else if err != nil {
		return nil, fmt.Errorf("read configuration of %s: %w", ref, err)
	}
	if out.Config, err = v1.ParseConfigFile(bytes.NewReader(out.rawConfig)); err != nil {
		return nil, fmt.Errorf("read configuration of %s: %w", ref, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, fmt.Errorf("read digest of %s: %w", ref, err)
	}
	out.Ref = ref.Context().Digest(digest.String())
	if n, m := len(out.Config.RootFS.DiffIDs), len(out.Manifest.Layers); n != m {
		return nil, fmt.Errorf("image %s: %d layers in the manifest and %d in the configuration", ref, m, n)
	}
	return out, nil
}

// Labels are the configuration's; never nil.
func (i *Image) Labels() map[string]string {
	if i.Config.Config.Labels == nil {
		return map[string]string{}
	}
	return i.Config.Config.Labels
}

// Created is the time in the configuration; the zero time of an image without one becomes 1970, which archives can
// hold.
func (i *Image) Created() time.Time {
	if i.Config.Created.IsZero() || i.Config.Created.Unix() < 0 {
		return time.Unix(0, 0).UTC()
	}
	return i.Config.Created.UTC().Truncate(time.Second)
}

// Layers opens the blobs from layer first on, for a walk over the file tree.
func (i *Image) Layers(first int) ([]basetree.Layer, error) {
	layers, err := i.remote.Layers()
	if err != nil {
		return nil, fmt.Errorf("list layers of %s: %w", i.Ref, err)
	}
	var out []basetree.Layer
	for _, l := range layers[min(first, len(layers)):] {
		out = append(out, func(context.Context) (io.ReadCloser, error) { return l.Compressed() })
	}
	return out, nil
}

// Find looks for a tag in a repository; nil without an error means that there is no such tag. An image without its
// configuration is ErrLost.
func (c *Client) Find(ctx context.Context, repository, tag, platform string) (*Image, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("read repository: %w", err)
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, fmt.Errorf("read platform %q: %w", platform, err)
	}
	img, err := c.read(ctx, repo.Tag(tag), p)
	if StatusOf(err) == http.StatusNotFound && !errors.Is(err, ErrLost) {
		return nil, nil
	}
	return img, err
}

// Exists asks for an image by tag or digest and gives the registry's error when it has none.
func (c *Client) Exists(ctx context.Context, reference string) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("read image reference: %w", err)
	}
	if _, err := remote.Head(ref, c.options(ctx, nil)...); err != nil {
		return fmt.Errorf("find image %s: %w", reference, err)
	}
	return nil
}

// Complete asks the registry for every blob of the image, in its own repository. It returns one that is missing, or "".
func (c *Client) Complete(ctx context.Context, i *Image) (string, error) {
	missing := make([]string, len(i.Manifest.Layers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobs())
	for k, l := range i.Manifest.Layers {
		g.Go(func() error {
			ok, err := c.hasBlob(ctx, i.Ref.Context(), l)
			if err == nil && !ok {
				missing[k] = l.Digest.String()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return "", err
	}
	return cmp.Or(missing...), nil
}

// hasBlob asks for a blob and compares its size.
func (c *Client) hasBlob(ctx context.Context, repo name.Repository, d v1.Descriptor) (bool, error) {
	layer, err := remote.Layer(repo.Digest(d.Digest.String()), c.options(ctx, nil)...)
	if err != nil {
		return false, fmt.Errorf("ask for blob %s: %w", d.Digest, err)
	}
	size, err := layer.Size()
	if StatusOf(err) == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for blob %s: %w", d.Digest, err)
	}
	return size == d.Size, nil
}

// object decodes JSON so that keys unknown to this program survive; numbers stay as they are written.
func object(raw []byte) (map[string]any, error) {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil {
		return nil, err
	}
	if out == nil {
		return nil, errors.New("it is no JSON object")
	}
	return out, nil
}
