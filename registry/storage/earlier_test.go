package storage_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	upstream "github.com/distribution/distribution/v3/registry/storage"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

// TestEarlierStore reads the root that commit d13be95 wrote: an image by sha256 and one by sha512, each with its digest
// algorithm as its tag, layers that are mounted into a second repository, a blob that nothing names and an upload under
// way.
func TestEarlierStore(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/d13be95")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, ".dayone-registry.stock/unready"), 0o700))
	const uploadID, emptyUpload = "88cd5fa6-9eb2-4b64-a7a2-6664e1f63cc7", "11111111-1111-4111-8111-111111111111"
	require.NoError(t, os.MkdirAll(filepath.Join(root, storage.Subdirectory, "repositories/os/app/_uploads", emptyUpload),
		0o700))
	s := open(t, root, storage.Options{})
	assert.NoDirExists(t, filepath.Join(root, ".dayone-registry.stock"))
	app, other := s.Repository("os/app"), s.Repository("os/other")

	for _, a := range []digest.Algorithm{digest.SHA256, digest.SHA512} {
		m, err := app.Tagged(string(a))
		require.NoError(t, err)
		assert.Equal(t, a.FromBytes(m.Body), m.Digest)
		_, err = app.Manifest(digest.FromBytes(m.Body))
		require.NoError(t, err)
		layer := "layer " + string(a) + "\n"
		for _, r := range []storage.Repository{app, other} {
			b, err := r.OpenBlob(a.FromString(layer))
			require.NoError(t, err)
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.NoError(t, b.Close())
			assert.Equal(t, layer, string(got))
		}
	}
	tags, err := app.Tags(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"sha256", "sha512"}, tags)

	for _, u := range []struct{ id, rest, whole string }{
		{uploadID, "second", "first second"}, {emptyUpload, "third", "third"},
	} {
		upload, err := app.Upload(t.Context(), u.id, "u")
		require.NoError(t, err)
		require.NoError(t, upload.Append(strings.NewReader(u.rest)))
		require.NoError(t, upload.Commit(t.Context(), digest.FromString(u.whole)))
		require.NoError(t, upload.Release())
	}
	found, err := storage.Verify(t.Context(), s, storage.VerifyOptions{})
	require.NoError(t, err)
	assert.Empty(t, found.Corrupt)
	assert.Empty(t, found.Missing)
	assert.Equal(t, 8, found.Blobs)

	collected, err := s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.Len(t, collected.Removed, 3, "the blob without a name and the two uploads")
	assert.Equal(t, 5, collected.Kept, "two layers, a configuration, two manifests")
}

// TestEarlierOrphans has what earlier versions left of an image that was deleted: a referrer that no index has, a
// referrer of it, and a signature under cosign's tag. They are listed, and go with their subject's digest.
func TestEarlierOrphans(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/d13be95")))
	base := filepath.Join(root, storage.Subdirectory)
	gone := digest.FromString("a deleted image")
	write := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	orphan := func(subject digest.Digest, kind string) digest.Digest {
		m := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"` + kind +
			`","config":{"mediaType":"application/vnd.oci.empty.v1+json","size":2,"digest":"` +
			digest.FromString("{}").String() + `"},"layers":[],"subject":{"mediaType":` +
			`"application/vnd.oci.image.manifest.v1+json","digest":"` + subject.String() + `","size":1}}`
		d := digest.FromString(m)
		write(filepath.Join(base, "blobs/sha256", d.Encoded()[:2], d.Encoded(), "data"), m)
		write(filepath.Join(base, "repositories/os/app/_manifests/revisions/sha256", d.Encoded(), "link"), d.String())
		return d
	}
	first := orphan(gone, "application/x.sbom")
	second := orphan(first, "application/x.signature")
	third := orphan(digest.FromString("{}"), "application/x.cosign")
	tag := filepath.Join(base, "repositories/os/app/_manifests/tags/sha256-"+gone.Encoded()+".sig")
	write(filepath.Join(tag, "current/link"), third.String())
	write(filepath.Join(tag, "index/sha256", third.Encoded(), "link"), third.String())

	s := open(t, root, storage.Options{})
	app := s.Repository("os/app")
	for subject, referrer := range map[digest.Digest]digest.Digest{gone: first, first: second} {
		page, err := storage.Referrers(app, subject, storage.ReferrersQuery{MaxBytes: 1 << 20})
		require.NoError(t, err)
		require.Len(t, page.Descriptors, 1)
		assert.Equal(t, referrer, page.Descriptors[0].Digest)
	}
	images, err := storage.ListImages(t.Context(), s)
	require.NoError(t, err)
	orphans := map[digest.Digest]digest.Digest{}
	for _, i := range images {
		if i.Orphaned != "" {
			orphans[i.Digest] = i.Orphaned
		}
	}
	assert.Equal(t, map[digest.Digest]digest.Digest{first: gone, third: digest.FromString("{}")}, orphans)

	require.NoError(t, app.DeleteManifest(t.Context(), gone))
	for _, d := range []digest.Digest{first, second, third} {
		_, err := app.Manifest(d)
		require.ErrorIs(t, err, storage.ErrNotFound)
	}
	require.ErrorIs(t, app.DeleteManifest(t.Context(), gone), storage.ErrNotFound)
	collected, err := s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.Subset(t, collected.Removed, []digest.Digest{first, second, third})
}

// TestDistributionMarkAndSweep shows why Collect marks by itself: distribution's collection takes the layers that an
// image names by sha512. When a version of distribution passes over them this test fails, and Collect can go.
func TestDistributionMarkAndSweep(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/d13be95")))
	driver := filesystem.New(filesystem.DriverParameters{RootDirectory: root, MaxThreads: 100})
	ns, err := upstream.NewRegistry(t.Context(), driver, upstream.EnableDelete)
	require.NoError(t, err)
	_ = upstream.MarkAndSweep(t.Context(), driver, ns, upstream.GCOpts{Quiet: true}) // it fails after it removed them
	found, err := storage.Verify(t.Context(), open(t, root, storage.Options{}), storage.VerifyOptions{})
	require.NoError(t, err)
	assert.Contains(t, found.Missing, "os/app@"+digest.SHA512.FromString("layer sha512\n").String())
}
