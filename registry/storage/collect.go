package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	upstream "github.com/distribution/distribution/v3/registry/storage"
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
}

// Collect removes the bytes of blobs that no manifest of any repository names. Every manifest counts, also one without
// a tag: images are pushed by digest here. Pulls go on; pushes wait at the point where they would make something
// visible. It removes nothing when a manifest cannot be read, because that one might name a blob.
//
// Marking is ours: distribution's MarkAndSweep knows neither a grace nor sha512 names, and passes over manifests that
// are damaged. It sweeps by distribution's Vacuum.
func (s *Store) Collect(ctx context.Context, o CollectOptions) (CollectReport, error) {
	r := CollectReport{Removed: []digest.Digest{}}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	s.maintenance.Lock()
	defer s.maintenance.Unlock()
	used, err := mark(ctx, s)
	if err != nil {
		return r, fmt.Errorf("collect garbage: nothing was removed: %w", err)
	}
	if !o.DryRun {
		if _, err := sweepUploads(ctx, s, new(CheckReport)); err != nil {
			return r, fmt.Errorf("collect garbage: %w", err)
		}
	}
	err = eachBlob(ctx, s, func(d digest.Digest, fi fs.FileInfo) error {
		if used[d] || time.Since(fi.ModTime()) < o.Grace {
			r.Kept++
			return ctx.Err()
		}
		r.Removed = append(r.Removed, d)
		r.Bytes += fi.Size()
		return ctx.Err()
	})
	if err == nil && !o.DryRun {
		err = sweep(ctx, s, r.Removed)
	}
	if err != nil {
		return r, fmt.Errorf("collect garbage: %w", err)
	}
	return r, nil
}

// sweep removes blobs and the links that lead to them.
func sweep(ctx context.Context, s *Store, unused []digest.Digest) error {
	gone := map[digest.Digest]bool{}
	for _, d := range unused {
		if err := upstream.NewVacuum(s.context(ctx), s.driver).RemoveBlob(string(d)); ignoreMissing(known(err)) != nil {
			return fmt.Errorf("remove blob %s: %w", d, known(err))
		}
		gone[d] = true
	}
	names, err := s.driver.repositories()
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, name := range names {
		layers, err := s.driver.links(layersDir(name))
		if err != nil {
			return err
		}
		for _, d := range layers {
			if target, err := s.driver.readLink(layerLink(name, d)); err == nil && gone[target] {
				if err := s.driver.unlink(ctx, layerLink(name, d)); ignoreMissing(err) != nil {
					return fmt.Errorf("remove link of blob %s: %w", d, err)
				}
			}
		}
	}
	return nil
}

// mark returns the blobs that manifests name, and the manifests' own.
func mark(ctx context.Context, s *Store) (map[digest.Digest]bool, error) {
	used := map[digest.Digest]bool{}
	err := eachManifest(ctx, s, func(r Repository, rev digest.Digest) error {
		if err := markManifest(r, rev, used); err != nil {
			return fmt.Errorf("read manifest %s of %s (push the image again): %w", rev, r.name, err)
		}
		return nil
	})
	return used, err
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
	var c Content
	if err := json.Unmarshal(m.Body, &c); err != nil {
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

// VerifyReport says which blobs were read and which of them are corrupt.
type VerifyReport struct {
	Blobs   int             `json:"blobs"`
	Bytes   int64           `json:"bytes"`
	Corrupt []digest.Digest `json:"corrupt"`
	// Missing are blobs that manifests name and the disk does not have, as REPOSITORY@DIGEST.
	Missing []string `json:"missing"`
}

// Verify hashes every blob, whatever was hashed before, and looks whether what manifests name is there. Corrupt blobs
// are moved away.
func (s *Store) Verify(ctx context.Context) (VerifyReport, error) {
	r := VerifyReport{Corrupt: []digest.Digest{}, Missing: []string{}}
	err := eachBlob(ctx, s, func(d digest.Digest, fi fs.FileInfo) error {
		r.Blobs++
		r.Bytes += fi.Size()
		s.driver.blobs.forget(d)
		if _, err := s.driver.blobs.stat(d); errors.Is(err, ErrCorrupt) {
			r.Corrupt = append(r.Corrupt, d)
		} else if err = ignoreMissing(err); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil {
		return r, fmt.Errorf("verify blobs: %w", err)
	}
	return r, eachManifest(ctx, s, func(repository Repository, rev digest.Digest) error {
		missing, err := missingOf(repository, rev)
		r.Missing = append(r.Missing, missing...)
		return err
	})
}

// missing names what an image lacks, as REPOSITORY@DIGEST.
func missingOf(r Repository, rev digest.Digest) (missing []string, err error) {
	lacks := func(d digest.Digest) { missing = append(missing, r.name+"@"+string(d)) }
	m, err := r.read(rev)
	if err != nil {
		lacks(rev)
		return missing, nil
	}
	var c Content
	if err := json.Unmarshal(m.Body, &c); err != nil {
		return nil, fmt.Errorf("parse manifest %s: %w", rev, err)
	}
	if c.Config != nil {
		c.Layers = append(c.Layers, *c.Config)
	}
	for _, l := range c.Layers {
		if _, err := r.StatBlob(l.Digest); err != nil && len(l.URLs) == 0 {
			lacks(l.Digest)
		}
	}
	for _, m := range c.Manifests {
		if !r.HasManifest(m.Digest) {
			lacks(m.Digest)
		}
	}
	return missing, nil
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
