package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

// A manifest is served as what it says it is, and one that does not say so as what it has.
func TestMediaTypeOfAManifest(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	config := fmt.Sprintf(`"config":{"digest":"%s","size":2}`, push(t, s, "a/b", []byte("{}")))
	for _, c := range []struct{ name, pushed, body, want string }{
		{"an image", v1.MediaTypeImageManifest, `{"schemaVersion":2,` + config + `,"layers":[]}`, v1.MediaTypeImageManifest},
		{"an index", v1.MediaTypeImageIndex, `{"schemaVersion":2,"manifests":[]}`, v1.MediaTypeImageIndex},
		{"docker's image", storage.MediaTypeDockerManifest, `{"schemaVersion":2,"mediaType":"` +
			storage.MediaTypeDockerManifest + `",` + config + `,"layers":[]}`, storage.MediaTypeDockerManifest},
		{"docker's list", storage.MediaTypeDockerList, `{"schemaVersion":2,"mediaType":"` + storage.MediaTypeDockerList +
			`","manifests":[]}`, storage.MediaTypeDockerList},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := digest.FromString(c.body)
			require.NoError(t, s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: c.pushed, Digest: d,
				Body: []byte(c.body)}))
			m, err := s.Repository("a/b").Manifest(d)
			require.NoError(t, err)
			assert.Equal(t, c.want, m.MediaType)
			assert.Equal(t, `"`+d.String()+`"`, m.Quoted)
		})
	}
}

// A layer that lives elsewhere need not be here: one that may not be distributed and has addresses.
func TestLayersElsewhere(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	config := fmt.Sprintf(`"config":{"digest":"%s","size":2}`, push(t, s, "a/b", []byte("{}")))
	for _, c := range []struct {
		name, layer string
		missing     bool
	}{
		{"not distributable", `"mediaType":"application/vnd.oci.image.layer.nondistributable.v1.tar","urls":["https://a/b"]`,
			false},
		{"foreign", `"mediaType":"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip","urls":["https://a/b"]`, false},
		{"foreign without an address", `"mediaType":"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"`, true},
		{"an address", `"mediaType":"application/vnd.oci.image.layer.v1.tar","urls":["https://a/b"]`, true},
		{"neither", `"mediaType":"application/vnd.oci.image.layer.v1.tar"`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s",%s,"layers":[{"digest":"%s","size":6,%s}]}`,
				v1.MediaTypeImageManifest, config, digest.FromString("absent"), c.layer)
			err := s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageManifest,
				Digest: digest.FromString(body), Body: []byte(body)})
			if c.missing {
				var lacks *storage.MissingError
				require.ErrorAs(t, err, &lacks)
				assert.Equal(t, []digest.Digest{digest.FromString("absent")}, lacks.Digests)
				return
			}
			require.NoError(t, err)
		})
	}
}

// What came from an upstream is known by both of its digests, and its tag by when the upstream had it last.
func TestUseOfWhatIsCached(t *testing.T) {
	const body = `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[]}`
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	r, long := s.Repository("a/b"), digest.SHA512.FromString(body)
	require.NoError(t, r.PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: long,
		Body: []byte(body), Tags: []string{"v1"}, Cached: true}))
	assert.True(t, storage.IsCached(r, long))
	assert.True(t, storage.IsCached(r, digest.FromString(body)))
	assert.False(t, storage.IsCached(r, digest.FromString("none")))
	used := func() time.Time {
		list, err := storage.ListCached(t.Context(), s)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		return list[0].Used
	}
	old := time.Now().Add(-time.Hour)
	mark := filepath.Join(root, storage.Subdirectory, "repositories/a/b/_manifests/revisions/sha256",
		digest.FromString(body).Encoded(), "cached")
	require.NoError(t, os.Chtimes(mark, old, old))
	require.NoError(t, storage.NoteUse(r, long))
	assert.WithinDuration(t, time.Now(), used(), time.Minute)
	require.NoError(t, storage.NoteUse(r, digest.SHA512.FromString("none")))

	require.NoError(t, storage.ConfirmTag(r, "v1"))
	assert.WithinDuration(t, time.Now(), storage.TagSince(r, "v1"), time.Minute)
	require.ErrorIs(t, storage.ConfirmTag(r, "none"), storage.ErrNotFound)
	assert.Zero(t, storage.TagSince(r, "none"))

	require.NoError(t, r.PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: long,
		Body: []byte(body), Cached: true}))
	assert.True(t, storage.IsCached(r, long))
	require.NoError(t, r.PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: long,
		Body: []byte(body)}))
	assert.False(t, storage.IsCached(r, long), "what was pushed here stays")
	require.NoError(t, r.PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: long,
		Body: []byte(body), Cached: true}))
	assert.False(t, storage.IsCached(r, long), "also when it comes from an upstream once more")
}

// An index needs its images with their bytes; one whose bytes are gone is missing.
func TestImagesOfAnIndex(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	image := put(t, s, "a/b", "v1", push(t, s, "a/b", []byte("layer")))
	m, err := s.Repository("a/b").Manifest(image)
	require.NoError(t, err)
	index := func(note string) error {
		body := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s","manifests":[{"mediaType":"%s","digest":"%s","size":%d}],`+
			`"annotations":{"a":"%s"}}`, v1.MediaTypeImageIndex, v1.MediaTypeImageManifest, image, len(m.Body), note)
		return s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex,
			Digest: digest.FromString(body), Body: []byte(body)})
	}
	require.NoError(t, index("whole"))
	require.NoError(t, os.Remove(blobFile(root, image)))
	var lacks *storage.MissingError
	require.ErrorAs(t, index("lost"), &lacks)
	assert.Equal(t, []digest.Digest{image}, lacks.Digests)
}

// A manifest that cannot be written takes no room.
func TestManifestThatCannotBeWritten(t *testing.T) {
	const body = `{"schemaVersion":2,"mediaType":"` + v1.MediaTypeImageIndex + `","manifests":[]}`
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	require.NoError(t, os.MkdirAll(filepath.Join(blobFile(root, digest.FromString(body)), "in the way"), 0o700))
	require.Error(t, s.Repository("a/b").PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex,
		Digest: digest.FromString(body), Body: []byte(body)}))
	assert.Zero(t, s.Used())
	assert.Zero(t, s.Reserved())

	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := storage.Open(file, storage.Options{})
	require.ErrorContains(t, err, "make registry directory")
}

// The catalog goes from page to page.
func TestCatalog(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	for _, name := range []string{"a/b", "c/d", "e/f"} {
		put(t, s, name, "v1", push(t, s, name, []byte(name)))
	}
	for _, c := range []struct {
		name  string
		limit int
		last  string
		want  []string
		more  bool
	}{
		{"the first page", 2, "", []string{"a/b", "c/d"}, true}, {"the next one", 2, "c/d", []string{"e/f"}, false},
		{"all", 10, "", []string{"a/b", "c/d", "e/f"}, false}, {"nothing is left", 10, "e/f", []string{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, more, err := s.Catalog(t.Context(), c.limit, c.last)
			require.NoError(t, err)
			assert.Equal(t, c.want, names)
			assert.Equal(t, c.more, more)
		})
	}
}

// A root that is not written to lists referrers that no index has, in the order of their digests.
func TestReferrersOfARootThatIsRead(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	image := put(t, s, "a/b", "v1", push(t, s, "a/b", []byte("layer")))
	var want []string
	for i := range 8 {
		want = append(want, manifest(t, s, "a/b", refersTo(image, fmt.Sprint("application/", i)), storage.Put{}).String())
	}
	slices.Sort(want)
	repositories := filepath.Join(root, storage.Subdirectory)
	require.NoError(t, os.RemoveAll(filepath.Join(repositories, "repositories/a/b/_referrers")))
	require.NoError(t, os.RemoveAll(filepath.Join(repositories, ".dayone-referrers")))
	s = open(t, root, storage.Options{ReadOnly: true})
	var got []string
	for after := ""; ; {
		page, err := storage.Referrers(s.Repository("a/b"), image, storage.ReferrersQuery{MaxBytes: 600, After: after})
		require.NoError(t, err)
		for _, d := range page.Descriptors {
			got = append(got, d.Digest.String())
		}
		if after = page.Next; after == "" {
			break
		}
	}
	assert.Equal(t, want, got)
	assert.NoDirExists(t, filepath.Join(repositories, "repositories/a/b/_referrers"))
}

// An upload is known by its identifier alone, and one whose files are gone is not found, however often one asks.
func TestUploadsThatAreNotThere(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{MaxUploads: 2})
	r := s.Repository("a/b")
	u := start(t, s, "u", "123")
	require.NoError(t, u.Release())
	for _, id := range []string{"", "x", "../" + u.ID(), strings.ToUpper(u.ID()), "{" + u.ID() + "}",
		"00000000-0000-4000-8000-000000000000"} {
		_, err := r.Upload(t.Context(), id, "u")
		require.ErrorIs(t, err, storage.ErrNotFound, id)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(root, storage.Subdirectory, "repositories/a/b/_uploads", u.ID())))
	for range 2 {
		_, err := r.Upload(t.Context(), u.ID(), "u")
		require.ErrorIs(t, err, storage.ErrNotFound)
	}
	for range 2 {
		require.NoError(t, start(t, s, "", "1").Release())
	}
	require.ErrorIs(t, storage.Restore(t.Context(), r, digest.FromString("x"), "", strings.NewReader("x")),
		storage.ErrTooManyUploads)
}
