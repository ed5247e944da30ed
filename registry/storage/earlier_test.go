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
