package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
)

// Image is a manifest of a repository with what it names.
type Image struct {
	Repository string
	Digest     digest.Digest
	MediaType  string
	Tags       []string
	Bytes      int64
	// Orphaned is the subject that the manifest refers to and its repository lacks; "" is none.
	Orphaned digest.Digest
	// Problem says why the manifest cannot be read; "" when it can.
	Problem string
}

// ListImages lists the manifests of all repositories with their tags. It does not hash them: a server may run on the
// root.
func ListImages(ctx context.Context, s *Store) ([]Image, error) {
	names, err := s.driver.repositories()
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, name := range names {
		images, err := imagesOf(ctx, s.Repository(name))
		if err != nil {
			return nil, err
		}
		out = append(out, images...)
	}
	return out, nil
}

func imagesOf(ctx context.Context, r Repository) ([]Image, error) {
	tags, err := r.Tags(ctx)
	if err != nil {
		return nil, err
	}
	byDigest := map[digest.Digest][]string{}
	for _, t := range tags {
		if d, err := r.s.driver.readLink(tagLink(r.name, t)); err == nil {
			byDigest[d] = append(byDigest[d], t)
		}
	}
	revisions, err := r.s.driver.links(revisionsDir(r.name))
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, d := range revisions {
		target, err := r.s.driver.readLink(revisionLink(r.name, d))
		if errors.Is(err, ErrNotFound) { // deleted meanwhile
			continue
		}
		var body []byte
		if err == nil {
			body, err = os.ReadFile(r.s.driver.full(blobData(target)))
		}
		var c *Content
		if err == nil {
			c, err = ParseContent(body)
		}
		if err != nil {
			out = append(out, Image{Repository: r.name, Digest: d, Tags: byDigest[d], Bytes: int64(len(body)),
				Problem: known(err).Error()})
			continue
		}
		img := Image{Repository: r.name, Digest: d, MediaType: c.guess(), Tags: byDigest[d], Bytes: int64(len(body))}
		if c.Config != nil {
			img.Bytes += c.Config.Size
		}
		for _, l := range c.Layers {
			img.Bytes += l.Size
		}
		if c.Subject != nil && !slices.Contains(revisions, c.Subject.Digest) {
			img.Orphaned = c.Subject.Digest
		}
		out = append(out, img)
	}
	return out, nil
}

// Usage is which blobs there are and which of them each repository links to, manifests included, each once.
type Usage struct {
	Sizes map[digest.Digest]int64
	Blobs map[string][]digest.Digest
}

// ReadUsage reads what is on disk.
func ReadUsage(ctx context.Context, s *Store) (Usage, error) {
	u := Usage{Sizes: map[digest.Digest]int64{}, Blobs: map[string][]digest.Digest{}}
	err := eachBlob(ctx, s, func(d digest.Digest, fi fs.FileInfo) error {
		u.Sizes[d] = fi.Size()
		return nil
	})
	if err != nil {
		return u, fmt.Errorf("list blobs: %w", err)
	}
	names, err := s.driver.repositories()
	if err != nil {
		return u, err
	}
	for _, name := range names {
		seen := map[digest.Digest]bool{}
		u.Blobs[name] = nil
		for _, dir := range []string{layersDir(name), revisionsDir(name)} {
			links, err := s.driver.links(dir)
			if err != nil {
				return u, err
			}
			for _, d := range links {
				if target, err := s.driver.readLink(linkBelow(dir, d)); err == nil && !seen[target] {
					seen[target] = true
					u.Blobs[name] = append(u.Blobs[name], target)
				}
			}
		}
	}
	return u, nil
}
