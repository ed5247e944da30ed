package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// MediaTypeDockerManifest and MediaTypeDockerList are docker's image manifest version 2 schema 2 and manifest list.
	MediaTypeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	MediaTypeDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// Manifest is a stored manifest. It is shared between requests: nobody may change it.
type Manifest struct {
	// Digest it was asked for by; for a tag the digest that the tag names.
	Digest    digest.Digest
	MediaType string
	Body      []byte
	// Quoted is the digest in quotes, as an ETag.
	Quoted string
}

// Content is what the registry reads of a manifest.
type Content struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        *v1.Descriptor    `json:"config,omitempty"`
	Layers        []v1.Descriptor   `json:"layers,omitempty"`
	Manifests     []v1.Descriptor   `json:"manifests,omitempty"`
	Subject       *v1.Descriptor    `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// guess is the media type of a manifest that does not name it, as its content has it.
func (c *Content) guess() string {
	switch {
	case c.MediaType != "":
		return c.MediaType
	case c.Manifests != nil:
		return v1.MediaTypeImageIndex
	}
	return v1.MediaTypeImageManifest
}

// Manifest returns a manifest of a repository by digest.
func (s *Store) Manifest(repo string, d digest.Digest) (*Manifest, error) {
	if m := s.manifests.get(repo, string(d)); m != nil {
		return m, nil
	}
	gen := s.manifests.generation()
	m, err := s.readManifest(repo, d)
	if err != nil {
		return nil, fmt.Errorf("read manifest %s of %s: %w", d, repo, err)
	}
	s.manifests.put(repo, string(d), m, gen)
	return m, nil
}

// Tagged returns the manifest that a tag names.
func (s *Store) Tagged(repo, tag string) (*Manifest, error) {
	if m := s.manifests.get(repo, tag); m != nil {
		return m, nil
	}
	gen := s.manifests.generation()
	d, err := readLink(s.tagLink(repo, tag))
	if err != nil {
		return nil, fmt.Errorf("read tag %s of %s: %w", tag, repo, err)
	}
	m, err := s.readManifest(repo, d)
	if err != nil {
		return nil, fmt.Errorf("read manifest %s of %s: %w", d, repo, err)
	}
	s.manifests.put(repo, tag, m, gen)
	return m, nil
}

func (s *Store) readManifest(repo string, d digest.Digest) (m *Manifest, err error) {
	target, err := readLink(s.revisionLink(repo, d))
	if err != nil {
		return nil, err
	}
	b, err := s.open(target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	body, err := io.ReadAll(b)
	if err != nil {
		return nil, err
	}
	var c Content
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	return &Manifest{Digest: d, MediaType: c.guess(), Body: body, Quoted: `"` + string(d) + `"`}, nil
}

// HasManifest tells whether a repository has a manifest.
func (s *Store) HasManifest(repo string, d digest.Digest) bool {
	target, err := readLink(s.revisionLink(repo, d))
	if err != nil {
		return false
	}
	_, err = os.Stat(s.blobPath(target))
	return err == nil
}

// Put is a manifest to be stored.
type Put struct {
	Repository string
	// Digest of Body; sha512 is stored under its sha256 too.
	Digest digest.Digest
	// Tags that name it from now on.
	Tags []string
	Body []byte
	// Needs are blobs and Children manifests that have to be in the repository.
	Needs, Children []digest.Digest
}

// MissingError lists what a manifest needs and its repository does not have.
type MissingError struct{ Digests []digest.Digest }

func (e *MissingError) Error() string { return fmt.Sprintf("the repository lacks %v", e.Digests) }

// PutManifest stores a manifest, then links it, then moves its tag; its bytes are on disk before its
// name, and all of it with the blobs it needs when PutManifest returns. What the manifest needs is checked
// and cannot be collected meanwhile.
func (s *Store) PutManifest(p Put) error {
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	if err := s.complete(p); err != nil {
		return err
	}
	defer s.manifests.drop(p.Repository) // also when only some of the tags could be moved
	canonical := digest.SHA256.FromBytes(p.Body)
	revisions := []digest.Digest{canonical}
	if p.Digest != canonical {
		revisions = append(revisions, p.Digest)
	}
	if err := s.putBytes(canonical, p.Body, s.newRevisions(p.Repository, canonical, revisions)); err != nil {
		return fmt.Errorf("store manifest %s: %w", p.Digest, err)
	}
	if len(p.Tags) == 0 { // else the tag's sync brings the names to disk too
		if err := syncDir(filepath.Dir(s.revisionLink(p.Repository, p.Digest))); err != nil {
			return fmt.Errorf("store manifest %s: %w", p.Digest, err)
		}
	}
	for i, tag := range p.Tags {
		how := bytesSynced
		if i == len(p.Tags)-1 {
			how = nameSynced
		}
		if err := s.tag(p, tag, canonical, how); err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
	}
	return nil
}

func (s *Store) complete(p Put) error {
	var missing []digest.Digest
	for _, d := range p.Needs {
		if _, err := s.StatBlob(p.Repository, d); errors.Is(err, ErrNotFound) {
			missing = append(missing, d)
		} else if err != nil {
			return err
		}
	}
	for _, d := range p.Children {
		if !s.HasManifest(p.Repository, d) {
			missing = append(missing, d)
		}
	}
	if missing != nil {
		return &MissingError{missing}
	}
	return nil
}

// putBytes stores a manifest's bytes, unless they are there, and then makes the links that name them.
func (s *Store) putBytes(d digest.Digest, body []byte, links []newFile) error {
	defer s.checking.lock(string(d))()
	path := s.blobPath(d)
	if s.isVerified(d) {
		return s.writeFiles(bytesSynced, links...)
	}
	n := int64(len(body))
	if err := s.take(n); err != nil {
		return err
	}
	if err := s.writeFiles(bytesSynced, append([]newFile{{path, body}}, links...)...); err != nil {
		s.give(n, n)
		return err
	}
	s.give(0, n)
	if fi, err := os.Stat(path); err == nil {
		s.verified.Store(d, identify(fi))
	}
	return nil
}

// newRevisions are the links of a manifest that its repository lacks. A link that is there was synced before it was
// named.
func (s *Store) newRevisions(repo string, canonical digest.Digest, revisions []digest.Digest) []newFile {
	var links []newFile
	for _, d := range revisions {
		path := s.revisionLink(repo, d)
		if old, err := readLink(path); err != nil || old != canonical {
			links = append(links, newFile{path, []byte(canonical)})
		}
	}
	return links
}

// tag moves a tag. Its links are those of the revision by other names, where they say the same.
func (s *Store) tag(p Put, tag string, canonical digest.Digest, how durability) error {
	// distribution looks here for the revisions that a tag had.
	index := s.tagDir(p.Repository, tag) + "/index/" + string(p.Digest.Algorithm()) + "/" + p.Digest.Encoded() + "/" +
		linkFile
	current := s.tagLink(p.Repository, tag)
	if p.Digest != canonical {
		return errors.Join(s.writeLink(index, p.Digest, volatile), s.writeLink(current, p.Digest, how))
	}
	revision := s.revisionLink(p.Repository, canonical)
	if old, err := readLink(index); err != nil || old != canonical {
		if err := s.copyLink(revision, index, canonical, volatile); err != nil {
			return err
		}
	}
	return s.moveLink(revision, current, canonical, how)
}

// DeleteTag removes a tag; the manifest stays.
func (s *Store) DeleteTag(repo, tag string) error {
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	if _, err := os.Stat(s.tagDir(repo, tag)); err != nil {
		return fmt.Errorf("delete tag %s of %s: %w", tag, repo, notFound(err))
	}
	defer s.manifests.drop(repo) // also when it went away only in part
	if err := os.RemoveAll(s.tagDir(repo, tag)); err != nil {
		return fmt.Errorf("delete tag %s of %s: %w", tag, repo, err)
	}
	return nil
}

// DeleteManifest removes a manifest from a repository, with the tags that name it. Its bytes stay until Collect.
func (s *Store) DeleteManifest(repo string, d digest.Digest) error {
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	link := s.revisionLink(repo, d)
	target, err := readLink(link)
	if err != nil {
		return fmt.Errorf("delete manifest %s of %s: %w", d, repo, err)
	}
	tags, err := s.Tags(repo)
	if err != nil {
		return err
	}
	defer s.manifests.drop(repo) // also when only some of its tags could be removed
	for _, t := range tags {
		if named, err := readLink(s.tagLink(repo, t)); err == nil && (named == d || named == target) {
			if err := os.RemoveAll(s.tagDir(repo, t)); err != nil {
				return fmt.Errorf("delete tag %s of %s: %w", t, repo, err)
			}
		}
	}
	for _, l := range []string{link, s.revisionLink(repo, target)} {
		if err := os.RemoveAll(filepath.Dir(l)); err != nil {
			return fmt.Errorf("delete manifest %s of %s: %w", d, repo, err)
		}
	}
	return nil
}

// DeleteBlob removes a blob from a repository. Its bytes stay until Collect.
func (s *Store) DeleteBlob(repo string, d digest.Digest) error {
	s.maintenance.RLock()
	defer s.maintenance.RUnlock()
	link := s.layerLink(repo, d)
	if _, err := os.Stat(link); err != nil {
		return fmt.Errorf("delete blob %s of %s: %w", d, repo, notFound(err))
	}
	defer s.links.forget()
	if err := os.RemoveAll(filepath.Dir(link)); err != nil {
		return fmt.Errorf("delete blob %s of %s: %w", d, repo, err)
	}
	return nil
}
