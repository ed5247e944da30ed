package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// What refers to a digest is found by an index: a file with a descriptor for each manifest that has a subject, in the
// directory of the subject. The file is on disk before the manifest's own link and goes after it, so that after a kill
// the index has at least what is true; who reads it looks whether the manifest is there. Check indexes what was stored
// without one: by earlier versions and by distribution's own server.

const (
	referrersDir = "_referrers"
	// indexedFile has the time until which all manifests are in the index.
	indexedFile = top + "/.dayone-referrers"
	// indexSlack is more than clocks of file systems and hosts differ by.
	indexSlack = time.Minute
)

// attachedSuffixes are cosign's: tags sha256-HEX.sig and so on of an image's signatures, attestations and bill of
// materials. The tag without one has an index of referrers (OCI distribution specification, "Referrers Tag Schema").
var attachedSuffixes = [...]string{".sig", ".att", ".sbom", ""}

// AttachedTags are the tags of what is attached to an image, whether there are any or not.
func AttachedTags(image digest.Digest) []string {
	var out []string
	for _, suffix := range attachedSuffixes {
		out = append(out, string(image.Algorithm())+"-"+image.Encoded()+suffix)
	}
	return out
}

func referrersTo(name string, subject digest.Digest) string {
	return path.Join(repositoryDir(name), referrersDir, string(subject.Algorithm()), subject.Encoded())
}

// referrer is the file of a manifest in the index; manifests are named by their sha256 there.
func referrer(name string, subject, d digest.Digest) string {
	return referrersTo(name, subject) + "/" + d.Encoded()
}

// indexReferrer adds a manifest that has a subject to the index.
func indexReferrer(r Repository, d digest.Digest, mediaType string, size int, c *Content) error {
	if c.Subject == nil {
		return nil
	}
	entry := v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(size), ArtifactType: c.ArtifactType,
		Annotations: c.Annotations}
	if entry.ArtifactType == "" && c.Config != nil {
		entry.ArtifactType = c.Config.MediaType
	}
	raw, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("index referrer %s: %w", d, err)
	}
	full := r.s.driver.full(referrer(r.name, c.Subject.Digest, d))
	if r.s.o.ReadOnly {
		r.s.unwritten.Store(full, raw)
		return nil
	}
	if err = known(os.MkdirAll(filepath.Dir(full), dirMode)); err == nil {
		err = placeSynced(full, raw)
	}
	if err != nil {
		return fmt.Errorf("index referrer %s: %w", d, err)
	}
	return nil
}

// ReferrersQuery asks for a page of what refers to a digest.
type ReferrersQuery struct {
	// ArtifactType is that of all descriptors of the page; "" is any.
	ArtifactType string
	// After is the Next of the page before, "" for the first one.
	After string
	// MaxBytes of the page's descriptors as JSON. One descriptor that is larger by itself comes without annotations.
	MaxBytes int
}

// ReferrersPage has descriptors in the order of their digests.
type ReferrersPage struct {
	Descriptors []v1.Descriptor
	// Next is where the next page begins; "" on the last one.
	Next string
}

// Referrers lists the manifests whose subject is d, which need not exist itself.
func Referrers(r Repository, d digest.Digest, q ReferrersQuery) (ReferrersPage, error) {
	page := ReferrersPage{Descriptors: []v1.Descriptor{}}
	found, err := referrersOf(r, d)
	if err != nil {
		return page, err
	}
	room, last := q.MaxBytes, ""
	for _, hex := range found {
		if hex <= q.After {
			continue
		}
		entry, size, err := readReferrer(r, d, digest.NewDigestFromEncoded(digest.SHA256, hex))
		if ignoreMissing(err) != nil {
			return page, err
		}
		if err != nil || q.ArtifactType != "" && entry.ArtifactType != q.ArtifactType {
			continue
		}
		if size > q.MaxBytes {
			entry.Annotations, size = nil, q.MaxBytes
		}
		if room -= size; room < 0 && len(page.Descriptors) > 0 {
			page.Next = last
			break
		}
		page.Descriptors, last = append(page.Descriptors, entry), hex
	}
	return page, nil
}

// referrersOf lists what the index has of a subject, sorted.
func referrersOf(r Repository, subject digest.Digest) ([]string, error) {
	dir := r.s.driver.full(referrersTo(r.name, subject))
	entries, err := os.ReadDir(dir)
	if ignoreMissing(err) != nil {
		return nil, fmt.Errorf("list referrers of %s: %w", subject, err)
	}
	var out []string
	for _, e := range entries {
		if digest.SHA256.Validate(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	r.s.unwritten.Range(func(full, _ any) bool {
		if path.Dir(full.(string)) == dir && !slices.Contains(out, path.Base(full.(string))) {
			out = append(out, path.Base(full.(string)))
		}
		return true
	})
	slices.Sort(out)
	return out, nil
}

// readReferrer is an ErrNotFound for a manifest that is not there, or no longer.
func readReferrer(r Repository, subject, d digest.Digest) (entry v1.Descriptor, size int, err error) {
	var raw []byte
	for _, needed := range []string{revisionLink(r.name, d), blobData(d)} {
		if _, err := os.Stat(r.s.driver.full(needed)); err != nil {
			return entry, 0, known(err)
		}
	}
	full := r.s.driver.full(referrer(r.name, subject, d))
	if kept, ok := r.s.unwritten.Load(full); ok {
		raw = kept.([]byte)
	} else if raw, err = os.ReadFile(full); err != nil {
		return entry, 0, known(err)
	}
	if err := json.Unmarshal(raw, &entry); err != nil {
		return entry, 0, fmt.Errorf("read referrer %s of %s: %w", d, subject, err)
	}
	return entry, len(raw) + 1, nil
}

// indexNew indexes the manifests that were linked since the index was complete, by whoever wrote them.
func indexNew(ctx context.Context, s *Store, now time.Time) error {
	var complete time.Time // never
	if b, err := os.ReadFile(s.driver.full(indexedFile)); err == nil {
		complete, _ = time.Parse(time.RFC3339, string(b)) // what is no time is never
	}
	err := eachManifest(ctx, s, func(r Repository, rev digest.Digest) error {
		fi, err := os.Stat(s.driver.full(revisionLink(r.name, rev)))
		if err != nil || fi.ModTime().Before(complete.Add(-indexSlack)) {
			return ignoreMissing(err)
		}
		d, err := s.driver.readLink(revisionLink(r.name, rev))
		var m *Manifest
		if err == nil {
			m, err = r.read(rev)
		}
		if err != nil { // it has its line in verify, and is no referrer
			return nil //nolint:nilerr // a damaged manifest does not keep the others from being served
		}
		c, err := ParseContent(m.Body)
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		return indexReferrer(r, d, m.MediaType, len(m.Body), c)
	})
	if err != nil || s.o.ReadOnly {
		return err
	}
	return placeSynced(s.driver.full(indexedFile), []byte(now.UTC().Format(time.RFC3339)))
}

// checkReferrers removes from the index of a repository what a kill left there.
func checkReferrers(t tree, dir string, r *CheckReport) error {
	name := path.Dir(strings.TrimPrefix(dir, t.full(repositories)+"/"))
	return filepath.WalkDir(dir, func(full string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreMissing(err)
		}
		d := digest.NewDigestFromEncoded(digest.SHA256, e.Name())
		if d.Validate() == nil {
			if _, err := os.Stat(t.full(revisionLink(name, d))); err == nil {
				return nil
			}
		}
		r.Removed = append(r.Removed, t.relative(full))
		return os.Remove(full)
	})
}

// deleteAttached deletes what is attached to a manifest that was deleted: its referrers with their own, and what
// cosign's tags name if nothing else names it. It returns how many that were.
func deleteAttached(ctx context.Context, r Repository, subject digest.Digest) (deleted int, err error) {
	found, err := referrersOf(r, subject)
	if err != nil {
		return 0, err
	}
	for _, hex := range found {
		d := digest.NewDigestFromEncoded(digest.SHA256, hex)
		err := deleteManifest(ctx, r, d)
		if err == nil {
			deleted++
		}
		if err := ignoreMissing(err); err != nil {
			return deleted, err
		}
		if err := ignoreMissing(os.Remove(r.s.driver.full(referrer(r.name, subject, d)))); err != nil {
			return deleted, fmt.Errorf("delete referrer %s of %s: %w", d, subject, err)
		}
	}
	for _, tag := range AttachedTags(subject) {
		d, err := r.s.driver.readLink(tagLink(r.name, tag))
		if err != nil { // there is none, or a broken one, which says nothing about a manifest
			continue
		}
		if err := deleteTagged(ctx, r, tag, d); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}

// deleteTagged deletes a tag, and the manifest that it names unless another tag names it, too.
func deleteTagged(ctx context.Context, r Repository, tag string, d digest.Digest) error {
	tags, err := tagsOf(ctx, r, d)
	if err != nil {
		return err
	}
	if len(tags) > 1 {
		return untag(ctx, r, tag)
	}
	err = deleteManifest(ctx, r, d)
	if errors.Is(err, ErrNotFound) {
		return untag(ctx, r, tag)
	}
	return err
}
