package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/storage"
)

const (
	// unwantedFile has for how long nothing has wanted an image.
	unwantedFile = "unwanted.json"
	// maxPage of referrers read at once.
	maxPage = 1 << 20
)

// unwanted is for how many milliseconds nothing has wanted an image, by REPOSITORY@DIGEST.
type unwanted map[string]int64

// drop lets go of images that nothing has wanted for the grace. Time counts by this process's own monotonic clock and
// only while the list is fresh, so that neither a wrong clock nor a cluster that is away lets an image go. An empty
// list drops nothing: no cluster wants no image. The bytes go with the next collection of garbage.
func (r *replica) drop(ctx context.Context, changed time.Time) error {
	now := time.Now()
	passed := min(now.Sub(r.looked), 2*r.o.Every)
	r.looked = now
	if age := now.Sub(changed); age.Abs() > freshFor || len(r.list.Images) == 0 {
		return nil
	}
	have, err := r.readUnwanted()
	if err != nil {
		return err
	}
	images, err := storage.ListImages(ctx, r.store)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	keep := r.kept()
	left, gone := unwanted{}, []storage.Image{}
	for _, i := range images {
		name := i.Repository + "@" + string(i.Digest)
		if keep[name] {
			continue
		}
		left[name] = have[name] + passed.Milliseconds()
		if left[name] >= r.o.Grace.Milliseconds() {
			gone = append(gone, i)
		}
	}
	for _, i := range gone {
		if err := r.store.Repository(i.Repository).DeleteManifest(ctx, i.Digest); err != nil &&
			!errors.Is(err, storage.ErrNotFound) { // it was attached to one that has gone
			return fmt.Errorf("drop image that nothing wants: %w", err)
		}
		delete(left, i.Repository+"@"+string(i.Digest))
		r.o.Log.WithField("image", i.Repository+"@"+string(i.Digest)).Info("registry dropped an image that nothing wants")
	}
	if maps.Equal(have, left) {
		return nil
	}
	return r.writeUnwanted(left)
}

// kept are all manifests that belong to wanted images: the images of an index, what refers to one of them, and what
// cosign's tags name.
func (r *replica) kept() map[string]bool {
	out := map[string]bool{}
	for _, i := range r.list.Images {
		r.keep(i.Repository, i.Digest, 0, out)
	}
	return out
}

func (r *replica) keep(repository string, d digest.Digest, depth int, out map[string]bool) {
	name := repository + "@" + string(d)
	if out[name] || depth > 2*maxDepth {
		return
	}
	out[name] = true
	from := r.store.Repository(repository)
	if m, err := from.Manifest(d); err == nil {
		if c, err := storage.ParseContent(m.Body); err == nil {
			for _, below := range c.Manifests {
				r.keep(repository, below.Digest, depth+1, out)
			}
		}
	}
	for _, tag := range storage.AttachedTags(d) {
		if m, err := from.Tagged(tag); err == nil {
			r.keep(repository, m.Digest, depth+1, out)
		}
	}
	for after := ""; ; {
		page, err := storage.Referrers(from, d, storage.ReferrersQuery{MaxBytes: maxPage, After: after})
		if err != nil {
			return
		}
		for _, m := range page.Descriptors {
			r.keep(repository, m.Digest, depth+1, out)
		}
		if after = page.Next; after == "" {
			return
		}
	}
}

// readUnwanted begins anew where the file cannot be read: then images stay longer.
func (r *replica) readUnwanted() (unwanted, error) {
	raw, err := os.ReadFile(r.o.file(unwantedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what nothing wants: %w", err)
	}
	var out unwanted
	if err := json.Unmarshal(raw, &out); err != nil {
		r.o.Log.WithError(err).Warn("the record of images that nothing wants is damaged and begins anew")
		return nil, nil
	}
	return out, nil
}

func (r *replica) writeUnwanted(u unwanted) error {
	raw, err := json.Marshal(u)
	if err == nil {
		err = renameio.WriteFile(r.o.file(unwantedFile), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("remember what nothing wants: %w", err)
	}
	return nil
}
