package storage

import (
	"cmp"
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
	Repository string        `json:"repository"`
	Tags       []string      `json:"tags"`
	Digest     digest.Digest `json:"digest"`
	MediaType  string        `json:"mediaType"`
	// Bytes of the manifest and of what it names, shared layers counted for each image.
	Bytes int64 `json:"bytes"`
	// Orphaned is the subject that the manifest refers to and its repository lacks; "" is none.
	Orphaned digest.Digest `json:"orphaned,omitempty"`
	// Problem says why the manifest cannot be read; "" when it can.
	Problem string `json:"problem,omitempty"`
}

// ListImages lists the manifests of all repositories with their tags. It does not hash them: a server may run on the
// root.
func ListImages(ctx context.Context, s *Store) ([]Image, error) {
	names, err := s.driver.repositories()
	if err != nil {
		return nil, err
	}
	out := []Image{} // what is empty is a list in JSON, too
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
		img := Image{Repository: r.name, Digest: d, Tags: byDigest[d]}
		if err == nil {
			err = readImage(&img, r.s.driver.full(blobData(target)), revisions)
		}
		if err != nil {
			img.Problem = known(err).Error()
		}
		out = append(out, img)
	}
	return out, nil
}

// readImage fills what the manifest's file says of an image. revisions are the manifests of its repository.
func readImage(img *Image, file string, revisions []digest.Digest) error {
	body, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	img.Bytes = int64(len(body))
	c, err := ParseContent(body)
	if err != nil {
		return err
	}
	img.MediaType = c.guess()
	if c.Config != nil {
		img.Bytes += c.Config.Size
	}
	for _, l := range c.Layers {
		img.Bytes += l.Size
	}
	if c.Subject != nil && !slices.Contains(revisions, c.Subject.Digest) {
		img.Orphaned = c.Subject.Digest
	}
	return nil
}

// Usage is what a repository takes on disk.
type Usage struct {
	Repository string `json:"repository"`
	// Bytes of all its blobs, manifests included, Own those that no other repository has.
	Bytes int64 `json:"bytes"`
	Own   int64 `json:"own"`
}

// ReadUsage returns what each repository takes, largest first, and what all blobs take together.
func ReadUsage(ctx context.Context, s *Store) (usage []Usage, total int64, err error) {
	sizes := map[digest.Digest]int64{}
	err = eachBlob(ctx, s, func(d digest.Digest, fi fs.FileInfo) error {
		sizes[d] = fi.Size()
		total += fi.Size()
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list blobs: %w", err)
	}
	names, err := s.driver.repositories()
	if err != nil {
		return nil, 0, err
	}
	holders := map[digest.Digest][]int{} // which of usage have a blob
	usage = []Usage{}                    // what is empty is a list in JSON, too
	for i, name := range names {
		linked := map[digest.Digest]bool{}
		if err := markRepository(s.Repository(name), linked); err != nil {
			return nil, 0, err
		}
		u := Usage{Repository: name}
		for d := range linked {
			u.Bytes += sizes[d]
			holders[d] = append(holders[d], i)
		}
		usage = append(usage, u)
	}
	for d, of := range holders {
		if len(of) == 1 {
			usage[of[0]].Own += sizes[d]
		}
	}
	slices.SortFunc(usage, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Repository, b.Repository))
	})
	return usage, total, nil
}
