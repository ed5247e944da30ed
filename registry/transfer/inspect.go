package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"
)

// Layer is a layer blob of an image, lowest first.
type Layer struct {
	Digest    digest.Digest
	Size      int64
	MediaType string
}

// Image is what a manifest and its configuration say.
type Image struct {
	// Digest is that of the image's own manifest, also when it was chosen from an index.
	Digest           digest.Digest
	MediaType        string
	Labels           map[string]string
	Architecture, OS string
	Layers           []Layer
}

// Inspect reads an image's manifest and configuration, both verified against their digests; of an index that of
// platform (OS/ARCH[/VARIANT], "" is this host's). errors.Is tells ErrNotFound from ErrUnauthorized, ErrDenied and
// ErrUnavailable.
func Inspect(ctx context.Context, e Endpoint, platform string) (Image, error) {
	return inspect(ctx, e, platform, inspectLimit)
}

func inspect(ctx context.Context, e Endpoint, platform string, limit time.Duration) (img Image, err error) {
	err = open(ctx, e, platform, limit, func(at opened) error {
		_, err := img.read(at.ctx, at.src, at.sys)
		return err
	})
	return img, err
}

// Find reads the manifest that a reference names, of an image or of an index, and gives its digest. Errors are as those
// of Inspect.
func Find(ctx context.Context, e Endpoint) (d digest.Digest, err error) {
	err = open(ctx, e, "", inspectLimit, func(at opened) error {
		raw, _, err := image.UnparsedInstance(at.src, nil).Manifest(at.ctx)
		if err == nil {
			d, err = manifest.Digest(raw)
		}
		return err
	})
	return d, err
}

// opened is an image at its source.
type opened struct {
	ctx   context.Context //nolint:containedctx // it ends with the function that has it
	src   types.ImageSource
	sys   *types.SystemContext
	heard func()
}

// open lets read have an image at its source. It ends when nothing was heard for limit.
func open(ctx context.Context, e Endpoint, platform string, limit time.Duration, read func(opened) error) (err error) {
	ctx, heard, stop := listen(ctx, limit)
	defer stop()
	ref, err := e.parse()
	if err != nil {
		return err
	}
	s, err := newScratch("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove()) }()
	sys, err := s.system(e, "source", "")
	if err != nil {
		return err
	}
	if platform != "" {
		if err := setPlatform(sys, platform); err != nil {
			return err
		}
	}
	src, err := ref.NewImageSource(ctx, sys)
	if err != nil {
		return advise(fmt.Errorf("open image %s: %w", e.Reference, orSilence(ctx, err)))
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := read(opened{ctx, src, sys, heard}); err != nil {
		return advise(fmt.Errorf("inspect image %s: %w", e.Reference, orSilence(ctx, err)))
	}
	return nil
}

func (img *Image) read(ctx context.Context, src types.ImageSource, sys *types.SystemContext) (types.Image, error) {
	// UnparsedImage verifies the manifest against the digest of its reference.
	raw, mediaType, err := image.UnparsedInstance(src, nil).Manifest(ctx)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var instance *digest.Digest
	if manifest.MIMETypeIsMultiImage(mediaType) {
		list, err := manifest.ListFromBlob(raw, mediaType)
		if err != nil {
			return nil, fmt.Errorf("read index: %w", err)
		}
		d, err := list.ChooseInstance(sys)
		if err != nil {
			return nil, fmt.Errorf("choose from index: %w", err)
		}
		instance = &d
	}
	unparsed := image.UnparsedInstance(src, instance)
	if raw, img.MediaType, err = unparsed.Manifest(ctx); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if img.Digest, err = manifest.Digest(raw); err != nil {
		return nil, fmt.Errorf("hash manifest: %w", err)
	}
	if instance != nil && img.Digest != *instance {
		return nil, fmt.Errorf("read manifest: its digest is %s, the index says %s", img.Digest, *instance)
	}
	parsed, err := image.FromUnparsedImage(ctx, sys, unparsed)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	info, err := parsed.Inspect(ctx)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	img.Labels, img.Architecture, img.OS = info.Labels, info.Architecture, info.Os
	for _, l := range parsed.LayerInfos() {
		img.Layers = append(img.Layers, Layer{Digest: l.Digest, Size: l.Size, MediaType: l.MediaType})
	}
	return parsed, nil
}
