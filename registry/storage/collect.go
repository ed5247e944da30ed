package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// defaultGrace protects blobs that were pushed, mounted or looked for this recently: their manifest may be on its way.
const defaultGrace = time.Hour

// CollectOptions of a garbage collection. The zero value collects what is older than defaultGrace.
type CollectOptions struct {
	// Grace is the age below which an unreferenced blob stays; 0 is defaultGrace, negative is none.
	Grace time.Duration
	// DryRun only tells what would be removed.
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
	used, err := s.mark(ctx)
	if err != nil {
		return r, fmt.Errorf("collect garbage: nothing was removed: %w", err)
	}
	if !o.DryRun {
		if _, err := s.sweepUploads(ctx, new(CheckReport)); err != nil {
			return r, fmt.Errorf("collect garbage: %w", err)
		}
	}
	err = s.eachBlob(ctx, func(d digest.Digest, fi fs.FileInfo) error {
		if used[d] || time.Since(fi.ModTime()) < o.Grace {
			r.Kept++
			return ctx.Err()
		}
		r.Removed = append(r.Removed, d)
		r.Bytes += fi.Size()
		return ctx.Err()
	})
	if err == nil && !o.DryRun {
		err = s.sweep(ctx, r.Removed)
	}
	if err != nil {
		return r, fmt.Errorf("collect garbage: %w", err)
	}
	return r, nil
}

// sweep removes blobs and the links that lead to them.
func (s *Store) sweep(ctx context.Context, unused []digest.Digest) error {
	gone := map[digest.Digest]bool{}
	for _, d := range unused {
		if err := s.vacuum(ctx).RemoveBlob(string(d)); ignoreMissing(known(err)) != nil {
			return fmt.Errorf("remove blob %s: %w", d, known(err))
		}
		gone[d] = true
	}
	names, err := s.repositoryNames()
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, name := range names {
		layers, err := s.Repository(name).layers()
		if err != nil {
			return err
		}
		for _, d := range layers {
			if target, err := s.readLink(layerLink(name, d)); err == nil && gone[target] {
				if err := s.unlink(ctx, layerLink(name, d)); ignoreMissing(err) != nil {
					return fmt.Errorf("remove link of blob %s: %w", d, err)
				}
			}
		}
	}
	return nil
}

// mark returns the blobs that manifests name, and the manifests' own.
func (s *Store) mark(ctx context.Context) (map[digest.Digest]bool, error) {
	used := map[digest.Digest]bool{}
	err := s.eachManifest(ctx, func(r Repository, rev digest.Digest) error {
		if err := r.mark(rev, used); err != nil {
			return fmt.Errorf("read manifest %s of %s (push the image again): %w", rev, r.name, err)
		}
		return nil
	})
	return used, err
}

func (s *Store) eachManifest(ctx context.Context, f func(r Repository, rev digest.Digest) error) error {
	names, err := s.repositoryNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		revisions, err := s.Repository(name).revisions()
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

func (r Repository) mark(rev digest.Digest, used map[digest.Digest]bool) error {
	target, err := r.s.readLink(revisionLink(r.name, rev))
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
			if target, err := r.s.readLink(link); err == nil { // sha512 names the bytes of a sha256
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
	err := s.eachBlob(ctx, func(d digest.Digest, fi fs.FileInfo) error {
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
	return r, s.eachManifest(ctx, func(repository Repository, rev digest.Digest) error {
		missing, err := repository.missing(rev)
		r.Missing = append(r.Missing, missing...)
		return err
	})
}

// missing names what an image lacks, as REPOSITORY@DIGEST.
func (r Repository) missing(rev digest.Digest) (missing []string, err error) {
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
