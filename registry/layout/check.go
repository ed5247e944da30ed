package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

const (
	// UploadLifetime is how long an upload without a request survives a restart: distribution purges after a week, a
	// bootstrap host does not live that long.
	UploadLifetime = 24 * time.Hour

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
func (s *Store) Check() (CheckReport, error) {
	var r CheckReport
	s.links.forget()
	if err := s.checkBlobs(&r); err != nil {
		return r, fmt.Errorf("check blobs: %w", err)
	}
	if err := s.checkRepositories(&r); err != nil {
		return r, fmt.Errorf("check repositories: %w", err)
	}
	s.used.Store(r.Bytes)
	s.unwritten.Store(0)
	return r, s.loadVerified()
}

func (s *Store) checkBlobs(r *CheckReport) error {
	return filepath.WalkDir(filepath.Join(s.root, blobsSubdir), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		switch {
		case e.IsDir():
			return nil
		case e.Name() == dataFile:
			fi, err := e.Info()
			if err != nil {
				return ignoreMissing(err)
			}
			r.Blobs++
			r.Bytes += fi.Size()
			return nil
		}
		r.Removed = append(r.Removed, s.relative(path))
		return os.Remove(path)
	})
}

func (s *Store) checkRepositories(r *CheckReport) error {
	return filepath.WalkDir(filepath.Join(s.root, reposSubdir), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		switch {
		case e.IsDir() && e.Name() == "_uploads":
			if err := s.checkUploads(path, r); err != nil {
				return err
			}
			return fs.SkipDir
		case e.IsDir():
			return nil
		case e.Name() == linkFile:
			return s.checkLink(path, r)
		}
		r.Removed = append(r.Removed, s.relative(path))
		return os.Remove(path)
	})
}

func (s *Store) relative(path string) string { return strings.TrimPrefix(path, s.root+"/") }

func (s *Store) checkUploads(dir string, r *CheckReport) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		fi, err := os.Stat(filepath.Join(path, dataFile))
		kept := int64(0)
		if err == nil {
			kept = fi.Size()
		} else if errors.Is(err, fs.ErrNotExist) { // one that was started and has no bytes yet
			fi, err = e.Info()
		}
		if err != nil || time.Since(fi.ModTime()) > UploadLifetime {
			r.Removed = append(r.Removed, s.relative(path))
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			continue
		}
		r.Uploads++
		r.Bytes += kept
	}
	return nil
}

// checkLink mends a link that a power cut left empty: its path has the digest, but for a tag's current link, which is
// taken from the newest of the tag's revisions.
func (s *Store) checkLink(path string, r *CheckReport) error {
	if _, err := readLink(path); err == nil {
		return nil
	} else if !errors.Is(err, ErrDigest) {
		return ignoreMissing(err)
	}
	d := digestOfPath(filepath.Dir(path))
	if filepath.Base(filepath.Dir(path)) == "current" {
		d = newestRevision(filepath.Join(filepath.Dir(filepath.Dir(path)), "index"))
	}
	if d != "" {
		if _, err := os.Stat(s.blobPath(d)); err == nil {
			r.Repaired = append(r.Repaired, s.relative(path))
			return s.writeLink(path, d, nameSynced)
		}
	}
	r.Removed = append(r.Removed, s.relative(path))
	return os.RemoveAll(filepath.Dir(path))
}

// digestOfPath reads …/sha256/<hex>. A sha512 link names the sha256 of the same bytes, which its path does not tell.
func digestOfPath(dir string) digest.Digest {
	d := digest.NewDigestFromEncoded(digest.SHA256, filepath.Base(dir))
	if filepath.Base(filepath.Dir(dir)) != string(digest.SHA256) || d.Validate() != nil {
		return ""
	}
	return d
}

func newestRevision(dir string) digest.Digest {
	entries, err := os.ReadDir(filepath.Join(dir, string(digest.SHA256)))
	if err != nil {
		return ""
	}
	var newest time.Time
	var found digest.Digest
	for _, e := range entries {
		fi, err := e.Info()
		if err == nil && fi.ModTime().After(newest) {
			newest, found = fi.ModTime(), digestOfPath(filepath.Join(dir, string(digest.SHA256), e.Name()))
		}
	}
	return found
}

// Close ends the stock and keeps which blobs were hashed, so that the next Store need not hash them again.
func (s *Store) Close() error {
	s.stock.close()
	seen := map[string]identity{}
	s.verified.Range(func(k, v any) bool {
		seen[string(k.(digest.Digest))] = v.(identity)
		return true
	})
	b, err := json.Marshal(seen)
	if err != nil {
		return fmt.Errorf("keep verified blobs: %w", err)
	}
	if err := s.writeFile(filepath.Join(s.base, verifiedFile), b, volatile); err != nil {
		if errors.Is(err, ErrNoSpace) { // they are hashed again then
			return nil
		}
		return fmt.Errorf("keep verified blobs: %w", err)
	}
	return nil
}

func (s *Store) loadVerified() error {
	b, err := os.ReadFile(filepath.Join(s.base, verifiedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read verified blobs: %w", err)
	}
	seen := map[string]identity{}
	if json.Unmarshal(b, &seen) != nil { // cut by a crash: everything is hashed again
		return nil
	}
	for k, id := range seen {
		if d, err := ParseDigest(k); err == nil {
			s.verified.Store(d, id)
		}
	}
	return nil
}
