package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// DefaultGrace protects blobs that were pushed, mounted or looked for this recently: their manifest may be on its way.
const DefaultGrace = time.Hour

// CollectOptions of a garbage collection. The zero value collects what is older than DefaultGrace.
type CollectOptions struct {
	// Grace is the age below which an unreferenced blob stays; 0 is DefaultGrace, negative is none.
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
func (s *Store) Collect(ctx context.Context, o CollectOptions) (CollectReport, error) {
	r := CollectReport{Removed: []digest.Digest{}}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	s.maintenance.Lock()
	defer s.maintenance.Unlock()
	used, err := s.mark(ctx)
	if err != nil {
		return r, fmt.Errorf("collect garbage: nothing was removed: %w", err)
	}
	if !o.DryRun {
		s.dropIdleUploads()
	}
	err = s.eachBlob(func(d digest.Digest, fi fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if used[d] || time.Since(fi.ModTime()) < o.Grace {
			r.Kept++
			return nil
		}
		r.Removed = append(r.Removed, d)
		r.Bytes += fi.Size()
		if o.DryRun {
			return nil
		}
		return s.removeBlob(d, fi.Size())
	})
	if err != nil {
		return r, fmt.Errorf("collect garbage: %w", err)
	}
	if o.DryRun || len(r.Removed) == 0 {
		return r, nil
	}
	return r, s.removeDeadLinks(r.Removed)
}

func (s *Store) removeBlob(d digest.Digest, size int64) error {
	if err := os.RemoveAll(s.blobDir(d)); err != nil {
		return fmt.Errorf("remove blob %s: %w", d, err)
	}
	s.used.Add(-size)
	s.verified.Delete(d)
	return nil
}

func (s *Store) removeDeadLinks(removed []digest.Digest) error {
	defer s.links.forget()
	gone := map[digest.Digest]bool{}
	for _, d := range removed {
		gone[d] = true
	}
	repos, err := s.Repositories()
	if err != nil {
		return err
	}
	for _, repo := range repos {
		layers, err := s.Layers(repo)
		if err != nil {
			return err
		}
		for _, d := range layers {
			link := s.layerLink(repo, d)
			if target, err := readLink(link); err == nil && gone[target] {
				if err := os.RemoveAll(filepath.Dir(link)); err != nil {
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
	repos, err := s.Repositories()
	if err != nil {
		return nil, err
	}
	for _, repo := range repos {
		revisions, err := s.Revisions(repo)
		if err != nil {
			return nil, err
		}
		for _, rev := range revisions {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := s.markManifest(repo, rev, used); err != nil {
				return nil, fmt.Errorf("read manifest %s of %s (push the image again): %w", rev, repo, err)
			}
		}
	}
	return used, nil
}

func (s *Store) markManifest(repo string, rev digest.Digest, used map[digest.Digest]bool) error {
	target, err := readLink(s.revisionLink(repo, rev))
	if err != nil {
		return err
	}
	used[target] = true
	m, err := s.readManifest(repo, rev)
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
		if target, err := readLink(s.layerLink(repo, d.Digest)); err == nil { // sha512 names the bytes of a sha256
			used[target] = true
		}
		if target, err := readLink(s.revisionLink(repo, d.Digest)); err == nil {
			used[target] = true
		}
	}
	return nil
}

// eachBlob calls f for every blob on disk.
func (s *Store) eachBlob(f func(d digest.Digest, fi fs.FileInfo) error) error {
	top := filepath.Join(s.root, blobsSubdir)
	return filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if e.IsDir() || e.Name() != dataFile {
			return nil
		}
		dir := filepath.Dir(path)
		d := digest.NewDigestFromEncoded(digest.Algorithm(filepath.Base(filepath.Dir(filepath.Dir(dir)))), filepath.Base(dir))
		if d.Validate() != nil {
			return nil
		}
		fi, err := e.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		return f(d, fi)
	})
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
	err := s.eachBlob(func(d digest.Digest, fi fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.Blobs++
		r.Bytes += fi.Size()
		s.verified.Delete(d)
		b, err := s.open(d)
		if errors.Is(err, ErrCorrupt) {
			r.Corrupt = append(r.Corrupt, d)
			return nil
		}
		if err != nil {
			return ignoreNotFound(err)
		}
		return b.Close()
	})
	if err != nil {
		return r, fmt.Errorf("verify blobs: %w", err)
	}
	return r, s.findMissing(&r)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (s *Store) findMissing(r *VerifyReport) error {
	repos, err := s.Repositories()
	if err != nil {
		return err
	}
	for _, repo := range repos {
		revisions, err := s.Revisions(repo)
		if err != nil {
			return err
		}
		for _, rev := range revisions {
			m, err := s.readManifest(repo, rev)
			if err != nil {
				r.Missing = append(r.Missing, repo+"@"+string(rev))
				continue
			}
			var c Content
			if err := json.Unmarshal(m.Body, &c); err != nil {
				return fmt.Errorf("parse manifest %s: %w", rev, err)
			}
			if c.Config != nil {
				c.Layers = append(c.Layers, *c.Config)
			}
			for _, l := range c.Layers {
				if _, err := s.StatBlob(repo, l.Digest); err != nil && len(l.URLs) == 0 {
					r.Missing = append(r.Missing, repo+"@"+string(l.Digest))
				}
			}
			for _, m := range c.Manifests {
				if !s.HasManifest(repo, m.Digest) {
					r.Missing = append(r.Missing, repo+"@"+string(m.Digest))
				}
			}
		}
	}
	return nil
}

// dropIdleUploads forgets uploads of this process whose client did not come back. Those of earlier ones are Check's.
func (s *Store) dropIdleUploads() {
	s.uploads.mu.Lock()
	var idle []*Upload
	for _, u := range s.uploads.byID {
		idle = append(idle, u)
	}
	s.uploads.mu.Unlock()
	for _, u := range idle {
		if !u.mu.TryLock() { // in use
			continue
		}
		if fi, err := u.stat(); err == nil && !u.done && time.Since(fi.ModTime()) > UploadLifetime {
			_ = u.close() // what cannot be removed now is removed by the next Check
		}
		u.mu.Unlock()
	}
}

func (u *Upload) stat() (fs.FileInfo, error) {
	if u.file == nil {
		return os.Stat(u.s.uploadDir(u.repo, u.id))
	}
	return u.file.Stat()
}
