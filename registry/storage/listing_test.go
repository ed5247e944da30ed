package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

// manifest is an image's without a configuration, which names what else is given.
func manifest(t *testing.T, s *storage.Store, repo string, more string, p storage.Put) digest.Digest {
	t.Helper()
	body := `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageManifest + `","config":` +
		fmt.Sprintf(`{"mediaType":"application/x","digest":"%s","size":2},"layers":[]`, push(t, s, repo, []byte("{}"))) +
		more + "}"
	p.MediaType, p.Body = v1.MediaTypeImageManifest, []byte(body)
	if p.Digest == "" {
		p.Digest = digest.FromString(body)
	} else {
		p.Digest = p.Digest.Algorithm().FromString(body)
	}
	require.NoError(t, s.Repository(repo).PutManifest(t.Context(), p))
	return p.Digest
}

func refersTo(d digest.Digest, kind string) string {
	return fmt.Sprintf(`,"artifactType":"%s","subject":{"mediaType":"%s","digest":"%s","size":2}`, kind,
		v1.MediaTypeImageManifest, d)
}

func TestListImagesAndUsage(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	empty, err := storage.ListImages(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, []storage.Image{}, empty)
	own, shared := push(t, s, "a/b", []byte("12345")), push(t, s, "a/b", []byte("1234567"))
	push(t, s, "c/d", []byte("1234567"))
	first := put(t, s, "a/b", "v1", own, shared)
	second := put(t, s, "c/d", "", shared)
	lost := digest.FromString("not here")
	orphan := manifest(t, s, "c/d", refersTo(lost, "application/sig"), storage.Put{})

	images, err := storage.ListImages(t.Context(), s)
	require.NoError(t, err)
	got := map[digest.Digest]storage.Image{}
	for _, i := range images {
		got[i.Digest] = i
	}
	size := func(repo string, d digest.Digest) int64 {
		m, err := s.Repository(repo).Manifest(d)
		require.NoError(t, err)
		return int64(len(m.Body))
	}
	assert.Equal(t, map[digest.Digest]storage.Image{
		first: {Repository: "a/b", Tags: []string{"v1"}, Digest: first, MediaType: v1.MediaTypeImageManifest,
			Bytes: size("a/b", first) + 2 + 5 + 7},
		second: {Repository: "c/d", Digest: second, MediaType: v1.MediaTypeImageManifest, Bytes: size("c/d", second) + 2 + 7},
		orphan: {Repository: "c/d", Digest: orphan, MediaType: v1.MediaTypeImageManifest, Bytes: size("c/d", orphan) + 2,
			Orphaned: lost},
	}, got)

	usage, total, err := storage.ReadUsage(t.Context(), s)
	require.NoError(t, err)
	a, c := size("a/b", first), size("c/d", second)+size("c/d", orphan)
	assert.ElementsMatch(t, []storage.Usage{{Repository: "a/b", Bytes: a + 2 + 5 + 7, Own: a + 5},
		{Repository: "c/d", Bytes: c + 2 + 7, Own: c}}, usage)
	assert.Equal(t, a+c+2+5+7, total)
	assert.GreaterOrEqual(t, usage[0].Bytes, usage[1].Bytes, "the largest is first")
}

func TestReferrerPages(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	r := s.Repository("a/b")
	subject := put(t, s, "a/b", "v1", push(t, s, "a/b", []byte("layer")))
	var all, signatures []digest.Digest
	for i := range 4 {
		kind := []string{"application/sig", "application/sbom"}[i%2]
		d := manifest(t, s, "a/b", refersTo(subject, kind)+fmt.Sprintf(`,"annotations":{"n":"%d"}`, i), storage.Put{})
		if all = append(all, d); i%2 == 0 {
			signatures = append(signatures, d)
		}
	}
	list := func(s *storage.Store, q storage.ReferrersQuery) (out []digest.Digest, pages int) {
		for {
			page, err := storage.Referrers(s.Repository("a/b"), subject, q)
			require.NoError(t, err)
			for _, d := range page.Descriptors {
				out = append(out, d.Digest)
			}
			if pages++; page.Next == "" {
				return out, pages
			}
			q.After = page.Next
		}
	}
	got, pages := list(s, storage.ReferrersQuery{MaxBytes: 1 << 20})
	assert.ElementsMatch(t, all, got)
	assert.Equal(t, 1, pages)
	got, pages = list(s, storage.ReferrersQuery{MaxBytes: 1})
	assert.ElementsMatch(t, all, got, "one on each page")
	assert.Equal(t, 4, pages)
	got, _ = list(s, storage.ReferrersQuery{MaxBytes: 1 << 20, ArtifactType: "application/sig"})
	assert.ElementsMatch(t, signatures, got)
	page, err := storage.Referrers(r, subject, storage.ReferrersQuery{MaxBytes: 1})
	require.NoError(t, err)
	assert.Empty(t, page.Descriptors[0].Annotations, "one that is too large for a page comes without them")

	require.NoError(t, r.DeleteManifest(t.Context(), all[0]))
	got, _ = list(s, storage.ReferrersQuery{MaxBytes: 1 << 20})
	assert.ElementsMatch(t, all[1:], got)

	require.NoError(t, os.RemoveAll(filepath.Join(root, storage.Subdirectory, ".dayone-referrers")), "an earlier store")
	got, _ = list(open(t, root, storage.Options{ReadOnly: true}), storage.ReferrersQuery{MaxBytes: 1 << 20})
	assert.ElementsMatch(t, all[1:], got, "without writing")
	assert.NoDirExists(t, filepath.Join(root, storage.Subdirectory, ".dayone-referrers"))
}

// A manifest with two digests goes away with both, with its tags and with what is attached to either.
func TestDeleteManifestOfTwoDigests(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	r := s.Repository("a/b")
	other := put(t, s, "a/b", "other", push(t, s, "a/b", []byte("layer")))
	long := manifest(t, s, "a/b", `,"annotations":{"a":"b"}`, storage.Put{Digest: digest.SHA512.FromString(""),
		Tags: []string{"long"}})
	m, err := r.Manifest(long)
	require.NoError(t, err)
	short := digest.FromBytes(m.Body)
	signed := manifest(t, s, "a/b", refersTo(short, "application/sig"), storage.Put{})
	cosigned := manifest(t, s, "a/b", `,"annotations":{"cosign":"x"}`,
		storage.Put{Tags: []string{"sha256-" + short.Encoded() + ".sig"}})

	second := manifest(t, s, "a/b", `,"annotations":{"c":"d"}`, storage.Put{Digest: digest.SHA512.FromString("")})

	require.NoError(t, r.DeleteManifest(t.Context(), short))
	for _, d := range []digest.Digest{long, short, signed, cosigned} {
		_, err := r.Manifest(d)
		require.ErrorIs(t, err, storage.ErrNotFound, d)
	}
	for _, d := range []digest.Digest{other, second} {
		_, err = r.Manifest(d)
		require.NoError(t, err, d)
	}
	tags, err := r.Tags(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, tags)

	m, err = r.Manifest(second)
	require.NoError(t, err)
	require.NoError(t, r.DeleteManifest(t.Context(), second))
	_, err = r.Manifest(digest.FromBytes(m.Body))
	require.ErrorIs(t, err, storage.ErrNotFound, "by its other digest, too")
}

func TestCachedManifests(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	r := s.Repository("a/b")
	ours := put(t, s, "a/b", "ours", push(t, s, "a/b", []byte("layer")))
	cached := []digest.Digest{
		manifest(t, s, "a/b", `,"annotations":{"n":"1"}`, storage.Put{Cached: true}),
		manifest(t, s, "a/b", `,"annotations":{"n":"2"}`, storage.Put{Cached: true}),
	}
	assert.False(t, storage.IsCached(r, ours))
	assert.True(t, storage.IsCached(r, cached[0]))
	assert.False(t, storage.IsCached(r, digest.FromString("absent")))
	old := time.Now().Add(-48 * time.Hour)
	var marks []string
	require.NoError(t, filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err == nil && strings.Contains(e.Name(), "cached") && !e.IsDir() {
			marks = append(marks, p)
			err = os.Chtimes(p, old, old)
		}
		return err
	}))
	require.Len(t, marks, 2)
	require.NoError(t, storage.NoteUse(r, cached[0]))
	require.NoError(t, storage.NoteUse(r, ours), "not from an upstream")
	list, err := storage.ListCached(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, cached[1], list[0].Digest, "the longest unused is first")
	assert.Equal(t, cached[0], list[1].Digest)
}
