package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	upstream "github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Exists tells whether anything was ever pushed to the repository.
func (r Repository) Exists() bool {
	for _, sub := range []string{"_manifests", "_layers"} {
		if _, err := os.Stat(r.s.driver.full(repositoryDir(r.name)) + "/" + sub); err == nil {
			return true
		}
	}
	return false
}

// Tags lists the tags of the repository, sorted by bytes.
func (r Repository) Tags(ctx context.Context) ([]string, error) {
	repo, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := repo.Tags(r.s.context(ctx)).All(r.s.context(ctx))
	if err = ignoreMissing(known(err)); err != nil {
		return nil, fmt.Errorf("list tags of %s: %w", r.name, err)
	}
	var tags []string
	for _, tag := range all {
		if _, err := os.Stat(r.s.driver.full(tagLink(r.name, tag))); err == nil {
			tags = append(tags, tag)
		}
	}
	return tags, nil
}

// revisions lists the digests of the repository's manifests, also by sha512 where they were pushed so. Distribution's
// enumeration passes over manifests that cannot be read: their layers would be collected.
func (r Repository) revisions() ([]digest.Digest, error) { return r.s.linksBelow(revisionsDir(r.name)) }

// layers lists the digests of the blobs that are linked into the repository.
func (r Repository) layers() ([]digest.Digest, error) { return r.s.linksBelow(layersDir(r.name)) }

func (s *Store) linksBelow(dir string) ([]digest.Digest, error) {
	var out []digest.Digest
	for _, a := range []digest.Algorithm{digest.SHA256, digest.SHA512} {
		entries, err := os.ReadDir(s.driver.full(dir) + "/" + string(a))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list digests: %w", err)
		}
		for _, e := range entries {
			d := digest.NewDigestFromEncoded(a, e.Name())
			if d.Validate() != nil {
				continue
			}
			if _, err := os.Stat(s.driver.full(linkBelow(dir, d))); err == nil {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// Referrers lists the manifests whose subject is d, as descriptors of an image index.
func (r Repository) Referrers(d digest.Digest) ([]v1.Descriptor, error) {
	revisions, err := r.revisions()
	if err != nil {
		return nil, err
	}
	seen := map[digest.Digest]bool{}
	out := []v1.Descriptor{}
	for _, rev := range revisions {
		target, err := r.s.readLink(revisionLink(r.name, rev))
		if err != nil || seen[target] {
			continue
		}
		m, err := r.Manifest(rev)
		if err != nil { // a manifest that was deleted meanwhile or is corrupt is no referrer
			continue
		}
		var c Content
		if json.Unmarshal(m.Body, &c) != nil || c.Subject == nil || c.Subject.Digest != d {
			continue
		}
		seen[target] = true
		desc := v1.Descriptor{MediaType: m.MediaType, Digest: rev, Size: int64(len(m.Body)), ArtifactType: c.ArtifactType,
			Annotations: c.Annotations}
		if desc.ArtifactType == "" && c.Config != nil {
			desc.ArtifactType = c.Config.MediaType
		}
		out = append(out, desc)
	}
	return out, nil
}

// Image is a manifest of a repository with what it names.
type Image struct {
	Repository string
	Digest     digest.Digest
	MediaType  string
	Tags       []string
	Bytes      int64
}

// Images lists the manifests of all repositories with their tags. It reads them without hashing: a server may run on
// the root.
func (s *Store) Images(ctx context.Context) ([]Image, error) {
	names, err := s.repositoryNames()
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, name := range names {
		images, err := s.Repository(name).images(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, images...)
	}
	return out, nil
}

func (r Repository) images(ctx context.Context) ([]Image, error) {
	tags, err := r.Tags(ctx)
	if err != nil {
		return nil, err
	}
	byDigest := map[digest.Digest][]string{}
	for _, t := range tags {
		if d, err := r.s.readLink(tagLink(r.name, t)); err == nil {
			byDigest[d] = append(byDigest[d], t)
		}
	}
	revisions, err := r.revisions()
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, d := range revisions {
		target, err := r.s.readLink(revisionLink(r.name, d))
		var body []byte
		if err == nil {
			body, err = os.ReadFile(r.s.driver.full(blobData(target)))
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			continue
		}
		var c Content
		if err == nil {
			err = json.Unmarshal(body, &c)
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s of %s: %w", d, r.name, err)
		}
		img := Image{Repository: r.name, Digest: d, MediaType: c.guess(), Tags: byDigest[d], Bytes: int64(len(body))}
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

// eachBlob calls f for every blob on disk.
func (s *Store) eachBlob(ctx context.Context, f func(d digest.Digest, fi fs.FileInfo) error) error {
	err := s.registry.Blobs().Enumerate(s.context(ctx), func(d digest.Digest) error {
		fi, err := os.Stat(s.driver.full(blobData(d)))
		if err != nil {
			return ignoreMissing(err)
		}
		return f(d, fi)
	})
	if missing := (upstream.PathNotFoundError{}); errors.As(err, &missing) {
		return nil // removed meanwhile
	}
	return err
}

// Usage is which blobs there are and which of them each repository links to, manifests included, each once.
type Usage struct {
	Sizes map[digest.Digest]int64
	Blobs map[string][]digest.Digest
}

// Usage reads what is on disk.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	u := Usage{Sizes: map[digest.Digest]int64{}, Blobs: map[string][]digest.Digest{}}
	err := s.eachBlob(ctx, func(d digest.Digest, fi fs.FileInfo) error {
		u.Sizes[d] = fi.Size()
		return nil
	})
	if err != nil {
		return u, fmt.Errorf("list blobs: %w", err)
	}
	names, err := s.repositoryNames()
	if err != nil {
		return u, err
	}
	for _, name := range names {
		seen := map[digest.Digest]bool{}
		u.Blobs[name] = nil
		for _, dir := range []string{layersDir(name), revisionsDir(name)} {
			links, err := s.linksBelow(dir)
			if err != nil {
				return u, err
			}
			for _, d := range links {
				if target, err := s.readLink(linkBelow(dir, d)); err == nil && !seen[target] {
					seen[target] = true
					u.Blobs[name] = append(u.Blobs[name], target)
				}
			}
		}
	}
	return u, nil
}

func (s *Store) relative(full string) string {
	return strings.TrimPrefix(filepath.ToSlash(full), s.driver.full(tree)+"/")
}
