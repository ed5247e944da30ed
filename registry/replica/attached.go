package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

// attachAll fetches signatures and whatever else refers to the images of a list that are here. The error says what
// could not be fetched; the images themselves are there.
func (f *fetcher) attachAll(ctx context.Context, l wanted.List) error {
	var errs []error
	for _, i := range l.Images {
		for _, d := range subjects(f.store.Repository(i.Repository), i.Digest, 0) {
			for _, p := range f.anyOrder() {
				if err := f.attach(ctx, p, i.Repository, d, 0); err != nil && ctx.Err() == nil {
					errs = append(errs, fmt.Errorf("fetch what is attached to %s: %w", i.Name(), err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// subjects are an image, or an index and what it has of images, as far as they are here.
func subjects(r storage.Repository, d digest.Digest, depth int) []digest.Digest {
	m, err := r.Manifest(d)
	if err != nil || depth > maxDepth {
		return nil
	}
	out := []digest.Digest{d}
	if c, err := storage.ParseContent(m.Body); err == nil {
		for _, below := range c.Manifests {
			out = append(out, subjects(r, below.Digest, depth+1)...)
		}
	}
	return out
}

// attach fetches what one peer has attached to an image.
func (f *fetcher) attach(ctx context.Context, p *peer, repository string, d digest.Digest, depth int) error {
	found, err := p.referrers(ctx, repository, d)
	errs := []error{err}
	for _, r := range found {
		if _, err := f.store.Repository(repository).Manifest(r); err == nil && depth > 0 {
			continue
		}
		err := f.manifest(ctx, repository, r, nil, 0)
		if err == nil && depth < maxDepth {
			err = f.attach(ctx, p, repository, r, depth+1)
		}
		errs = append(errs, err)
	}
	if depth == 0 {
		for _, tag := range storage.AttachedTags(d) {
			errs = append(errs, f.attachTag(ctx, p, repository, tag))
		}
	}
	return errors.Join(errs...)
}

// attachTag takes over what a tag of cosign's names at a peer, unless this registry has signatures there that the peer
// lacks.
func (f *fetcher) attachTag(ctx context.Context, p *peer, repository, tag string) error {
	_, body, err := p.manifest(ctx, repository, tag)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	theirs, err := storage.ParseContent(body)
	if err != nil {
		return err
	}
	d := digest.FromBytes(body)
	ours, err := f.store.Repository(repository).Tagged(tag)
	switch {
	case err == nil && ours.Digest == d:
		return nil
	case err == nil:
		have, err := storage.ParseContent(ours.Body)
		if err == nil && !within(have, theirs) {
			return nil
		}
	case !errors.Is(err, storage.ErrNotFound):
		return err
	}
	return f.manifest(ctx, repository, d, []string{tag}, 0)
}

// within reports whether a manifest has each layer and image of another one, and more or others of them in all.
func within(ours, theirs *storage.Content) bool {
	seen := map[digest.Digest]bool{}
	for _, l := range slices.Concat(theirs.Layers, theirs.Manifests) {
		seen[l.Digest] = true
	}
	for _, l := range slices.Concat(ours.Layers, ours.Manifests) {
		if !seen[l.Digest] {
			return false
		}
	}
	return len(seen) > len(ours.Layers)+len(ours.Manifests)
}
