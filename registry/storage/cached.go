package storage

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
)

// cachedFile lies beside the link of a manifest that came from an upstream and can come again. Its time is when the
// manifest was last asked for. It goes with the link; distribution and earlier versions pass over it.
const cachedFile = "cached"

func cachedMark(name string, d digest.Digest) string {
	return path.Dir(revisionLink(name, d)) + "/" + cachedFile
}

// markCached notes that a manifest came from an upstream.
func markCached(r Repository, d digest.Digest) error {
	if err := os.WriteFile(r.s.driver.full(cachedMark(r.name, d)), nil, fileMode); err != nil {
		return fmt.Errorf("mark manifest %s as cached: %w", d, known(err))
	}
	return nil
}

// IsCached reports whether a manifest came from an upstream and can come again.
func IsCached(r Repository, d digest.Digest) bool {
	target, err := r.s.driver.readLink(revisionLink(r.name, d))
	if err == nil {
		_, err = os.Stat(r.s.driver.full(cachedMark(r.name, target)))
	}
	return err == nil
}

// NoteUse notes that a manifest was asked for, if it came from an upstream.
func NoteUse(r Repository, d digest.Digest) error {
	if d.Algorithm() != digest.SHA256 {
		target, err := r.s.driver.readLink(revisionLink(r.name, d))
		if err != nil {
			return ignoreMissing(err)
		}
		d = target
	}
	mark, now := r.s.driver.full(cachedMark(r.name, d)), time.Now()
	fi, err := os.Stat(mark)
	if err == nil && now.Sub(fi.ModTime()).Abs() >= touchEvery {
		err = os.Chtimes(mark, now, now)
	}
	return ignoreMissing(known(err))
}

// TagSince is when a tag was set or confirmed; the zero time without such a tag.
func TagSince(r Repository, tag string) time.Time {
	fi, err := os.Stat(r.s.driver.full(tagLink(r.name, tag)))
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

// ConfirmTag notes that the upstream has the tag as it is here.
func ConfirmTag(r Repository, tag string) error {
	now := time.Now()
	if err := os.Chtimes(r.s.driver.full(tagLink(r.name, tag)), now, now); err != nil {
		return fmt.Errorf("confirm tag %s of %s: %w", tag, r.name, known(err))
	}
	return nil
}

// Cached is a manifest that came from an upstream.
type Cached struct {
	Repository Repository
	Digest     digest.Digest
	Used       time.Time
}

// ListCached lists the manifests that came from an upstream, least recently used first.
func ListCached(ctx context.Context, s *Store) ([]Cached, error) {
	var out []Cached
	err := eachManifest(ctx, s, func(r Repository, d digest.Digest) error {
		fi, err := os.Stat(s.driver.full(cachedMark(r.name, d)))
		if err == nil {
			out = append(out, Cached{r, d, fi.ModTime()})
		}
		return ignoreMissing(err)
	})
	if err != nil {
		return nil, fmt.Errorf("list cached manifests: %w", err)
	}
	slices.SortFunc(out, func(a, b Cached) int {
		return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Digest, b.Digest))
	})
	return out, nil
}
