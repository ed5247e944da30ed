package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/opencontainers/go-digest"
)

// Image is a manifest of a repository with what it names.
type Image struct {
	Digest    digest.Digest
	MediaType string
	Tags      []string
	Bytes     int64
}

// Images lists the manifests of a repository with their tags. It reads them without hashing: a server may run on the
// root.
func (s *Store) Images(repo string) ([]Image, error) {
	tags, err := s.Tags(repo)
	if err != nil {
		return nil, err
	}
	byDigest := map[digest.Digest][]string{}
	for _, t := range tags {
		if d, err := readLink(s.tagLink(repo, t)); err == nil {
			byDigest[d] = append(byDigest[d], t)
		}
	}
	revisions, err := s.Revisions(repo)
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, d := range revisions {
		target, err := readLink(s.revisionLink(repo, d))
		if errors.Is(err, ErrNotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		body, err := os.ReadFile(s.blobPath(target))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s of %s: %w", d, repo, err)
		}
		var c Content
		if err := json.Unmarshal(body, &c); err != nil {
			return nil, fmt.Errorf("parse manifest %s of %s: %w", d, repo, err)
		}
		img := Image{Digest: d, MediaType: c.guess(), Tags: byDigest[d], Bytes: int64(len(body))}
		if c.Config != nil {
			img.Bytes += c.Config.Size
		}
		for _, l := range c.Layers {
			img.Bytes += l.Size
		}
		out = append(out, img)
	}
	return out, nil
}

// BlobSizes lists the blobs on disk.
func (s *Store) BlobSizes() (map[digest.Digest]int64, error) {
	out := map[digest.Digest]int64{}
	err := s.eachBlob(func(d digest.Digest, fi fs.FileInfo) error {
		out[d] = fi.Size()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	return out, nil
}

// BlobsOf lists the blobs on disk that a repository links to, manifests included, each once.
func (s *Store) BlobsOf(repo string) ([]digest.Digest, error) {
	seen := map[digest.Digest]bool{}
	var out []digest.Digest
	add := func(list []digest.Digest, err error, link func(string, digest.Digest) string) error {
		if err != nil {
			return err
		}
		for _, d := range list {
			if target, err := readLink(link(repo, d)); err == nil && !seen[target] {
				seen[target] = true
				out = append(out, target)
			}
		}
		return nil
	}
	layers, err := s.Layers(repo)
	if err := add(layers, err, s.layerLink); err != nil {
		return nil, err
	}
	revisions, err := s.Revisions(repo)
	return out, add(revisions, err, s.revisionLink)
}
