package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
)

// stockDir and verifiedFile are what versions before this one may have left behind.
const (
	stockDir     = ".dayone-registry.stock"
	verifiedFile = ".dayone-registry.verified"
)

// CheckReport says what Check found and did.
type CheckReport struct {
	Blobs   int
	Bytes   int64
	Uploads int
	// Repaired links were written again from their path; Removed files were left behind by a crash.
	Repaired, Removed []string
}

// Check makes the root consistent after a crash and counts what is there. It reads no blob: those whose file changed
// since they were hashed are hashed when they are first asked for. No request may run meanwhile.
func (s *Store) Check(ctx context.Context) (CheckReport, error) {
	var r CheckReport
	now := time.Now()
	if s.o.ReadOnly {
		return s.look(ctx)
	}
	if err := checkBlobs(s.driver.tree, &r); err != nil {
		return r, fmt.Errorf("check blobs: %w", err)
	}
	kept, err := sweepUploads(ctx, s, &r)
	if err != nil {
		return r, fmt.Errorf("check uploads: %w", err)
	}
	if err := checkLinks(ctx, s, &r); err != nil {
		return r, fmt.Errorf("check repositories: %w", err)
	}
	for _, old := range []string{stockDir, verifiedFile} {
		if err := os.RemoveAll(filepath.Join(string(s.driver.tree), old)); err != nil {
			return r, fmt.Errorf("remove what an earlier version left: %w", err)
		}
	}
	r.Bytes += kept
	s.driver.budget.used.Store(r.Bytes)
	if err := indexNew(ctx, s, now); err != nil {
		return r, fmt.Errorf("index referrers: %w", err)
	}
	return r, nil
}

// look counts what is there and changes nothing.
func (s *Store) look(ctx context.Context) (r CheckReport, err error) {
	if err := eachBlob(ctx, s, func(_ digest.Digest, fi fs.FileInfo) error {
		r.Blobs++
		r.Bytes += fi.Size()
		return nil
	}); err != nil {
		return r, fmt.Errorf("count blobs: %w", err)
	}
	s.driver.budget.used.Store(r.Bytes)
	if err := indexNew(ctx, s, time.Now()); err != nil {
		return r, fmt.Errorf("index referrers: %w", err)
	}
	return r, nil
}

func checkBlobs(t tree, r *CheckReport) error {
	return filepath.WalkDir(t.full(blobs)+"/", func(full string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreMissing(err)
		}
		if e.Name() != dataFile {
			r.Removed = append(r.Removed, t.relative(full))
			return os.Remove(full)
		}
		fi, err := e.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		r.Blobs++
		r.Bytes += fi.Size()
		return nil
	})
}

// sweepUploads removes uploads whose client did not come back, notes the others and returns what they take.
func sweepUploads(ctx context.Context, s *Store, r *CheckReport) (kept int64, err error) {
	names, err := s.driver.repositories()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		entries, err := os.ReadDir(s.driver.full(repositoryDir(name)) + "/" + uploadsDir)
		if ignoreMissing(err) != nil {
			return kept, err
		}
		for _, e := range entries {
			n, err := sweepUpload(ctx, s, name, e.Name(), r)
			if err != nil {
				return kept, err
			}
			kept += n
		}
	}
	return kept, nil
}

func sweepUpload(ctx context.Context, s *Store, name, id string, r *CheckReport) (kept int64, err error) {
	dir := uploadDir(name, id)
	fi, err := os.Stat(s.driver.full(dir) + "/" + dataFile)
	if err == nil {
		kept = fi.Size()
	} else if errors.Is(err, fs.ErrNotExist) { // one that was started and has no bytes yet
		fi, err = os.Stat(s.driver.full(dir))
	}
	owner := s.driver.ownerOf(name, id)
	if err != nil || owner == FetchOwner || time.Since(fi.ModTime()) > s.o.UploadIdle {
		r.Removed = append(r.Removed, s.driver.relative(s.driver.full(dir)))
		return 0, ignoreMissing(known(s.driver.Delete(ctx, dir)))
	}
	r.Uploads++
	used := fi.ModTime()
	if now := time.Now(); used.After(now) { // the clock was set back
		used = now
	}
	if err := s.unfinished.begin(owner, math.MaxInt); err != nil {
		return kept, err
	}
	s.unfinished.put(id, unfinishedUpload{name, owner, used})
	// distribution goes on only with the time when it began, which an earlier version did not write and a power cut may
	// have taken. States of the hash are not synced either: without them distribution reads the data again.
	if err := os.RemoveAll(s.driver.full(dir) + "/" + hashStatesDir); err != nil {
		return kept, fmt.Errorf("remove states of the hash: %w", err)
	}
	began := []byte(fi.ModTime().UTC().Format(time.RFC3339))
	return kept, s.driver.PutContent(ctx, dir+"/"+startedAtFile, began)
}

func checkLinks(ctx context.Context, s *Store, r *CheckReport) error {
	return filepath.WalkDir(s.driver.full(repositories)+"/", func(full string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return ignoreMissing(err)
		case e.IsDir() && e.Name() == uploadsDir:
			return fs.SkipDir
		case e.IsDir() && e.Name() == referrersDir:
			if err := checkReferrers(s.driver.tree, full, r); err != nil {
				return err
			}
			return fs.SkipDir
		case !e.Type().IsRegular(): // a link is not what a crash leaves
			return nil
		case e.Name() == linkFile:
			return checkLink(ctx, s, full[len(s.driver.tree):], r)
		case e.Name() == cachedFile:
			if _, err := os.Stat(filepath.Dir(full) + "/" + linkFile); err == nil {
				return nil
			}
		}
		r.Removed = append(r.Removed, s.driver.relative(full))
		return os.Remove(full)
	})
}

// checkLink repairs a link that a power cut left empty: its path has the digest, but for a tag's current link, which is
// taken from the newest of the tag's revisions.
func checkLink(ctx context.Context, s *Store, link string, r *CheckReport) error {
	if _, err := s.driver.readLink(link); err == nil {
		return nil
	} else if !errors.Is(err, ErrDigest) {
		return ignoreMissing(err)
	}
	d, ok := linked(link)
	if path.Base(path.Dir(link)) == "current" {
		d, ok = s.driver.newestRevision(path.Join(path.Dir(path.Dir(link)), "index"))
	}
	// A sha512 link names the sha256 of the same bytes, which its path does not tell.
	if ok && d.Algorithm() == digest.SHA256 {
		if _, err := os.Stat(s.driver.full(blobData(d))); err == nil {
			r.Repaired = append(r.Repaired, s.driver.relative(s.driver.full(link)))
			return s.writeLink(ctx, link, d)
		}
	}
	r.Removed = append(r.Removed, s.driver.relative(s.driver.full(link)))
	return s.driver.Delete(ctx, path.Dir(link))
}
