package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Repositories lists the repositories that have something in them, sorted.
func (s *Store) Repositories() ([]string, error) {
	var repos []string
	top := filepath.Join(s.root, reposSubdir)
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "_") {
			return nil
		}
		if rel, err := filepath.Rel(top, filepath.Dir(path)); err == nil && (len(repos) == 0 || repos[len(repos)-1] != rel) {
			repos = append(repos, rel)
		}
		return fs.SkipDir
	})
	if err != nil {
		return nil, fmt.Errorf("list repositories: %w", err)
	}
	sort.Strings(repos)
	return repos, nil
}

// HasRepository tells whether anything was ever pushed to a repository.
func (s *Store) HasRepository(repo string) bool {
	for _, sub := range []string{"_manifests", "_layers"} {
		if _, err := os.Stat(s.repoPath(repo) + "/" + sub); err == nil {
			return true
		}
	}
	return false
}

// Tags lists the tags of a repository, sorted by bytes.
func (s *Store) Tags(repo string) ([]string, error) {
	entries, err := os.ReadDir(s.repoPath(repo) + "/_manifests/tags")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list tags of %s: %w", repo, err)
	}
	var tags []string
	for _, e := range entries {
		if _, err := os.Stat(s.tagLink(repo, e.Name())); err == nil {
			tags = append(tags, e.Name())
		}
	}
	return tags, nil
}

// Revisions lists the digests of a repository's manifests, also by sha512 where they were pushed so.
func (s *Store) Revisions(repo string) ([]digest.Digest, error) {
	return listDigests(s.repoPath(repo) + "/_manifests/revisions")
}

// Layers lists the digests of the blobs that are linked into a repository.
func (s *Store) Layers(repo string) ([]digest.Digest, error) {
	return listDigests(s.repoPath(repo) + "/_layers")
}

func listDigests(dir string) ([]digest.Digest, error) {
	var out []digest.Digest
	for _, a := range []digest.Algorithm{digest.SHA256, digest.SHA512} {
		entries, err := os.ReadDir(filepath.Join(dir, string(a)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list digests: %w", err)
		}
		for _, e := range entries {
			if d := digest.NewDigestFromEncoded(a, e.Name()); d.Validate() == nil {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// Referrers lists the manifests of a repository whose subject is d, as descriptors of an image index.
func (s *Store) Referrers(repo string, d digest.Digest) ([]v1.Descriptor, error) {
	revisions, err := s.Revisions(repo)
	if err != nil {
		return nil, err
	}
	seen := map[digest.Digest]bool{}
	out := []v1.Descriptor{}
	for _, rev := range revisions {
		target, err := readLink(s.revisionLink(repo, rev))
		if err != nil || seen[target] {
			continue
		}
		m, err := s.Manifest(repo, rev)
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
