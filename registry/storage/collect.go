package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// defaultGrace protects blobs that were pushed, mounted or looked for this recently: their manifest may be on its way.
const defaultGrace = time.Hour

// CollectOptions of a garbage collection. The zero value collects what is older than defaultGrace.
type CollectOptions struct {
	// Grace is the age below which an unreferenced blob stays; 0 is defaultGrace, negative is none.
	Grace time.Duration
	// DryRun only reports what would be removed.
	DryRun bool
}

// CollectReport says what a garbage collection removed, or would.
type CollectReport struct {
	Kept    int             `json:"kept"`
	Removed []digest.Digest `json:"removed"`
	Bytes   int64           `json:"bytes"`
	// Damaged are manifests that cannot be read, as REPOSITORY@DIGEST. Nothing of their repositories is removed.
	Damaged []string `json:"damaged"`
}

// Collect removes the bytes of blobs that no manifest of any repository names. Every manifest counts, also one without
// a tag: images are pushed by digest here. Pulls and pushes go on: what they use meanwhile stays. A manifest that
// cannot be read might name any blob of its repository, so that all of them stay.
//
// Marking is ours: distribution's MarkAndSweep knows neither a grace nor sha512 names, and passes over manifests that
// are damaged. It sweeps by distribution's Vacuum.
func (s *Store) Collect(ctx context.Context, o CollectOptions) (CollectReport, error) {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	r := CollectReport{Removed: []digest.Digest{}, Damaged: []string{}}
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	s.maintenance.Lock() // a request that is under way has named what it names before the marks
	s.pins.begin()
	s.maintenance.Unlock()
	defer s.pins.end()
	used, damaged, err := mark(ctx, s)
	r.Damaged = append(r.Damaged, damaged...)
	if err != nil {
		return r, fmt.Errorf("collect garbage: nothing was removed: %w", err)
	}
	unused := map[digest.Digest]bool{}
	err = eachBlob(ctx, s, func(d digest.Digest, fi fs.FileInfo) error {
		r.Kept++
		if !used[d] && o.Grace > 0 && !o.DryRun && time.Until(fi.ModTime()) > touchEvery {
			return s.driver.blobs.beginGrace(d) // the clock was set back
		}
		if !used[d] && time.Since(fi.ModTime()) >= o.Grace {
			unused[d] = true
			if o.DryRun {
				r.removed(d, fi.Size())
			}
		}
		return ctx.Err()
	})
	if err == nil && !o.DryRun {
		err = sweepAll(ctx, s, unused, o.Grace, &r)
	}
	if err != nil {
		return r, fmt.Errorf("collect garbage: %w", err)
	}
	return r, nil
}

func (r *CollectReport) removed(d digest.Digest, size int64) {
	r.Kept--
	r.Removed = append(r.Removed, d)
	r.Bytes += size
}

func sweepAll(ctx context.Context, s *Store, unused map[digest.Digest]bool, grace time.Duration,
	r *CollectReport) error {
	links, err := linksTo(s, unused)
	if err != nil {
		return err
	}
	for d := range unused {
		size, gone, err := sweep(ctx, s, d, links[d], grace)
		if err != nil {
			return err
		}
		if gone {
			r.removed(d, size)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	_, err = s.EndIdleUploads(ctx)
	return err
}

// mark returns the blobs that manifests name, and the manifests' own.
func mark(ctx context.Context, s *Store) (used map[digest.Digest]bool, damaged []string, err error) {
	used = map[digest.Digest]bool{}
	err = eachManifest(ctx, s, func(r Repository, rev digest.Digest) error {
		err := markManifest(r, rev, used)
		if _, gone := r.s.driver.readLink(revisionLink(r.name, rev)); errors.Is(gone, ErrNotFound) {
			return nil // deleted meanwhile
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrManifest) {
			if IsCached(r, rev) { // it comes again with what it names
				return nil
			}
			damaged = append(damaged, r.name+"@"+string(rev))
			return markRepository(r, used)
		}
		if err != nil {
			return fmt.Errorf("read manifest %s of %s: %w", rev, r.name, err)
		}
		return nil
	})
	return used, damaged, err
}

// markRepository adds all that a repository links to: its manifests can name nothing else.
func markRepository(r Repository, used map[digest.Digest]bool) error {
	for _, dir := range []string{layersDir(r.name), revisionsDir(r.name)} {
		links, err := r.s.driver.links(dir)
		if err != nil {
			return err
		}
		for _, d := range links {
			if target, err := r.s.driver.readLink(linkBelow(dir, d)); err == nil {
				used[target] = true
			}
		}
	}
	return nil
}

func eachManifest(ctx context.Context, s *Store, f func(r Repository, rev digest.Digest) error) error {
	names, err := s.driver.repositories()
	if err != nil {
		return err
	}
	for _, name := range names {
		revisions, err := s.driver.links(revisionsDir(name))
		if err != nil {
			return err
		}
		for _, rev := range revisions {
			if err := errors.Join(ctx.Err(), f(s.Repository(name), rev)); err != nil {
				return err
			}
		}
	}
	return nil
}

func markManifest(r Repository, rev digest.Digest, used map[digest.Digest]bool) error {
	target, err := r.s.driver.readLink(revisionLink(r.name, rev))
	if err != nil {
		return err
	}
	used[target] = true
	m, err := r.read(rev)
	if err != nil {
		return err
	}
	c, err := ParseContent(m.Body)
	if err != nil {
		return err
	}
	named := append(append([]v1.Descriptor{}, c.Layers...), c.Manifests...)
	if c.Config != nil {
		named = append(named, *c.Config)
	}
	for _, d := range named {
		used[d.Digest] = true
		for _, link := range []string{layerLink(r.name, d.Digest), revisionLink(r.name, d.Digest)} {
			if target, err := r.s.driver.readLink(link); err == nil { // sha512 names the bytes of a sha256
				used[target] = true
			}
		}
	}
	return nil
}

// eachBlob calls f for every blob on disk.
func eachBlob(ctx context.Context, s *Store, f func(d digest.Digest, fi fs.FileInfo) error) error {
	err := s.registry.Blobs().Enumerate(s.context(ctx), func(d digest.Digest) error {
		fi, err := os.Stat(s.driver.full(blobData(d)))
		if err != nil {
			return ignoreMissing(err)
		}
		return f(d, fi)
	})
	if missing := (storagedriver.PathNotFoundError{}); errors.As(err, &missing) {
		return nil // removed meanwhile
	}
	return err
}
