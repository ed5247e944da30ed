package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
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
