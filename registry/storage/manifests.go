package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/distribution/v3/manifest/manifestlist"
	_ "github.com/distribution/distribution/v3/manifest/ocischema" // UnmarshalManifest of OCI's manifests
	"github.com/distribution/distribution/v3/manifest/schema2"
	upstream "github.com/distribution/distribution/v3/registry/storage"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// MediaTypeDockerManifest and MediaTypeDockerList are docker's image manifest version 2 schema 2 and manifest list.
	MediaTypeDockerManifest = schema2.MediaTypeManifest
	MediaTypeDockerList     = manifestlist.MediaTypeManifestList
)

// Manifest is a stored manifest. It is shared between requests: no request may change it.
type Manifest struct {
	// Digest it was asked for by; for a tag the digest that the tag names.
	Digest    digest.Digest
	MediaType string
	Body      []byte
	// Quoted is the digest in quotes, as an ETag.
	Quoted string
}

// Manifest returns a manifest by digest.
func (r Repository) Manifest(d digest.Digest) (*Manifest, error) {
	return r.cached(string(d), func() (digest.Digest, error) { return d, nil })
}

// Tagged returns the manifest that a tag names.
func (r Repository) Tagged(tag string) (*Manifest, error) {
	return r.cached(tag, func() (digest.Digest, error) { return r.s.driver.readLink(tagLink(r.name, tag)) })
}

func (r Repository) cached(ref string, resolve func() (digest.Digest, error)) (*Manifest, error) {
	if m := r.s.manifests.get(r.name, ref); m != nil {
		return m, nil
	}
	gen := r.s.manifests.generation()
	d, err := resolve()
	var m *Manifest
	if err == nil {
		m, err = r.read(d)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest %s of %s: %w", ref, r.name, err)
	}
	r.s.manifests.put(r.name, ref, m, gen)
	return m, nil
}

func (r Repository) read(d digest.Digest) (m *Manifest, err error) {
	target, err := r.s.driver.readLink(revisionLink(r.name, d))
	if err != nil {
		return nil, err
	}
	f, _, err := r.s.driver.blobs.open(target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	body, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	var c struct { // also of a manifest from before ParseContent: its bytes are what was pushed
		MediaType string          `json:"mediaType"`
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	mediaType := (&Content{MediaType: c.MediaType, Manifests: c.Manifests}).guess()
	return &Manifest{Digest: d, MediaType: mediaType, Body: body, Quoted: `"` + string(d) + `"`}, nil
}

// statManifest returns the size of a manifest.
func (r Repository) statManifest(d digest.Digest) (int64, error) {
	target, err := r.s.driver.readLink(revisionLink(r.name, d))
	if err != nil {
		return 0, err
	}
	fi, err := r.s.driver.blobs.stat(target)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// Put is a manifest to be stored.
type Put struct {
	// Digest of Body; sha512 is stored under its sha256 too.
	Digest digest.Digest
	// MediaType of Body.
	MediaType string
	// Tags that name it from now on.
	Tags []string
	Body []byte
	// Sparse accepts a manifest whose blobs or manifests are not all in the repository.
	Sparse bool
	// Cached says that it came from an upstream and may go when room runs low. One that was pushed here stays.
	Cached bool
}

// PutManifest stores a manifest, then links it, then moves its tags, each on disk before the next; all of it with the
// blobs it needs when PutManifest returns. What the manifest needs is checked and cannot be collected meanwhile.
func (r Repository) PutManifest(ctx context.Context, p Put) error {
	r.s.maintenance.RLock()
	defer r.s.maintenance.RUnlock()
	c, err := ParseContent(p.Body)
	if err == nil {
		r.pin(p.Digest, c)
		err = r.complete(c, p.Sparse)
	}
	if err != nil {
		return err
	}
	parsed, _, err := distribution.UnmarshalManifest(p.MediaType, p.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrManifest, err)
	}
	repo, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer r.s.manifests.drop(r.name) // also when only some of the tags could be moved
	ctx = r.s.context(ctx)
	// complete has checked what is needed: distribution's own check does not know sha512, sparse indexes and subjects.
	service, err := repo.Manifests(ctx, upstream.SkipLayerVerification())
	if err != nil {
		return fmt.Errorf("store manifest %s: %w", p.Digest, err)
	}
	if err := indexReferrer(r, digest.FromBytes(p.Body), p.MediaType, len(p.Body), c); err != nil {
		return err
	}
	_, missing := os.Stat(r.s.driver.full(revisionLink(r.name, digest.FromBytes(p.Body))))
	canonical, err := service.Put(ctx, parsed)
	switch {
	case err != nil:
	case !p.Cached:
		err = ignoreMissing(os.Remove(r.s.driver.full(cachedMark(r.name, canonical))))
	case missing != nil:
		err = markCached(r, canonical)
	}
	if err == nil && canonical != p.Digest {
		err = r.s.writeLink(ctx, revisionLink(r.name, p.Digest), canonical)
	}
	if err == nil {
		r.s.pins.add(canonical)
		_, err = r.s.driver.blobs.touch(canonical) // it may have been there for long
	}
	if err != nil {
		return fmt.Errorf("store manifest %s: %w", p.Digest, known(err))
	}
	for _, tag := range p.Tags {
		if err := repo.Tags(ctx).Tag(ctx, tag, v1.Descriptor{Digest: p.Digest}); err != nil {
			return fmt.Errorf("tag %s: %w", tag, known(err))
		}
	}
	return nil
}

// pin keeps a collection under way from what a manifest names.
func (r Repository) pin(d digest.Digest, c *Content) {
	r.s.pins.add(d)
	for _, blob := range c.Blobs() {
		r.s.pins.add(blob.Digest)
		if target, err := r.s.driver.readLink(layerLink(r.name, blob.Digest)); err == nil {
			r.s.pins.add(target) // sha512 names the bytes of a sha256
		}
	}
}

// complete looks whether what a manifest names is in the repository and has the size that the manifest says. A subject
// may come later (OCI distribution specification, "Pushing Manifests with Subject").
func (r Repository) complete(c *Content, sparse bool) error {
	var missing []digest.Digest
	check := func(d v1.Descriptor, stat func(digest.Digest) (int64, error)) error {
		size, err := stat(d.Digest)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrCorrupt):
			missing = append(missing, d.Digest)
		case err != nil:
			return err
		case size != d.Size:
			return fmt.Errorf("%w: the size of %s is %d, the manifest says %d", ErrManifest, d.Digest, size, d.Size)
		}
		return nil
	}
	for _, d := range c.Blobs() {
		if err := check(d, r.StatBlob); err != nil {
			return err
		}
	}
	for _, d := range c.Manifests {
		if err := check(d, r.statManifest); err != nil {
			return err
		}
	}
	if missing != nil && !sparse {
		return &MissingError{missing}
	}
	return nil
}

// DeleteTag removes a tag; the manifest stays.
func (r Repository) DeleteTag(ctx context.Context, tag string) error {
	r.s.maintenance.RLock()
	defer r.s.maintenance.RUnlock()
	defer r.s.manifests.drop(r.name) // also when it went away only in part
	return untag(ctx, r, tag)
}

func untag(ctx context.Context, r Repository, tag string) error {
	repo, err := r.open(ctx)
	if err != nil {
		return err
	}
	ctx = r.s.context(ctx)
	if err := repo.Tags(ctx).Untag(ctx, tag); err != nil {
		return fmt.Errorf("delete tag %s of %s: %w", tag, r.name, known(err))
	}
	return nil
}

// tagsOf are the tags that name a manifest by this digest.
func tagsOf(ctx context.Context, r Repository, d digest.Digest) ([]string, error) {
	repo, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	ctx = r.s.context(ctx)
	tags, err := repo.Tags(ctx).Lookup(ctx, v1.Descriptor{Digest: d})
	if err != nil {
		return nil, fmt.Errorf("find tags of %s: %w", d, known(err))
	}
	return tags, nil
}

// DeleteManifest removes a manifest from the repository by each of its digests, with the tags that name it and with
// what is attached to it: referrers, and signatures and attestations under cosign's tags. The bytes stay until Collect.
// One that cannot be read is removed too. Of one that is not there what is attached is removed, which earlier versions
// left behind.
func (r Repository) DeleteManifest(ctx context.Context, d digest.Digest) error {
	r.s.maintenance.RLock()
	defer r.s.maintenance.RUnlock()
	defer r.s.manifests.drop(r.name) // also when only some of its tags could be removed
	return deleteManifest(ctx, r, d)
}

func deleteManifest(ctx context.Context, r Repository, d digest.Digest) error {
	target, err := r.s.driver.readLink(revisionLink(r.name, d))
	if errors.Is(err, ErrNotFound) {
		deleted, attachedErr := deleteAttached(ctx, r, d)
		if deleted > 0 || attachedErr != nil {
			return attachedErr
		}
	}
	if err != nil {
		return fmt.Errorf("delete manifest %s of %s: %w", d, r.name, err)
	}
	names, err := namesOf(r, target)
	if err != nil {
		return err
	}
	var subject *v1.Descriptor
	if m, err := r.read(d); err == nil {
		if c, err := ParseContent(m.Body); err == nil {
			subject = c.Subject
		}
	}
	for _, name := range names {
		if err := unlinkManifest(ctx, r, name); err != nil {
			return err
		}
	}
	if subject != nil {
		err := os.Remove(r.s.driver.full(referrer(r.name, subject.Digest, target)))
		if ignoreMissing(err) != nil {
			return fmt.Errorf("delete referrer %s of %s: %w", d, subject.Digest, err)
		}
	}
	for _, name := range names {
		if _, err := deleteAttached(ctx, r, name); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the digests under which a repository has a manifest: the sha256 of its bytes, and sha512.
func namesOf(r Repository, target digest.Digest) ([]digest.Digest, error) {
	names := []digest.Digest{target}
	revisions, err := r.s.driver.links(revisionsDir(r.name))
	if err != nil {
		return nil, err
	}
	for _, rev := range revisions {
		if rev.Algorithm() == digest.SHA256 {
			continue
		}
		if to, err := r.s.driver.readLink(revisionLink(r.name, rev)); err == nil && to == target {
			names = append(names, rev)
		}
	}
	return names, nil
}

func unlinkManifest(ctx context.Context, r Repository, name digest.Digest) error {
	tags, err := tagsOf(ctx, r, name)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if err := ignoreMissing(untag(ctx, r, tag)); err != nil {
			return err
		}
	}
	vacuum := upstream.NewVacuum(r.s.context(ctx), r.s.driver)
	if err := vacuum.RemoveManifest(r.name, name, nil); ignoreMissing(known(err)) != nil {
		return fmt.Errorf("delete manifest %s of %s: %w", name, r.name, known(err))
	}
	return nil
}

// Exists reports whether anything was ever pushed to the repository.
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
