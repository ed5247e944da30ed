package layout_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/layout"
)

const stockSubdir = ".dayone-registry.stock"

// stocked waits until the stock of a store that has seen a push is full and returns its inodes.
func stocked(t *testing.T, root string) map[uint64]bool {
	t.Helper()
	inodes := map[uint64]bool{}
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(filepath.Join(root, stockSubdir))
		if err != nil {
			return false
		}
		clear(inodes)
		for _, e := range entries {
			if fi, err := e.Info(); err == nil && e.Name() != "unready" {
				inodes[fi.Sys().(*syscall.Stat_t).Ino] = true
			}
		}
		return len(inodes) >= 64+8+2 // each filler has one in hand
	}, time.Minute, 5*time.Millisecond)
	return inodes
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	fi, err := os.Stat(path)
	require.NoError(t, err)
	return fi.Sys().(*syscall.Stat_t).Ino
}

func TestAPushTakesWhatWasMadeAheadAndTheStockGoesWithTheStore(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	push(t, s, "a/b", []byte("first"))
	ahead := stocked(t, root)
	layer := push(t, s, "a/b", []byte("layer"))
	m := put(t, s, "a/b", "v1", layer)
	ok, err := s.Mount("a/b", "c/d", layer)
	require.NoError(t, err)
	require.True(t, ok)
	for _, path := range []string{blobFile(root, layer), blobFile(root, m)} {
		assert.True(t, ahead[inode(t, path)], "the file of %s was made ahead", path)
		assert.True(t, ahead[inode(t, filepath.Dir(path))], "the directory of %s was made ahead", path)
	}
	mounted := filepath.Join(root, layout.Subdirectory, "repositories/c/d/_layers/sha256", layer.Encoded())
	assert.True(t, ahead[inode(t, mounted)], "the directory of a mount was made ahead")
	require.NoError(t, s.Close())
	assert.NoDirExists(t, filepath.Join(root, stockSubdir))

	s = open(t, root, layout.Options{})
	got, err := s.Tagged("a/b", "v1")
	require.NoError(t, err)
	assert.Equal(t, m, got.Digest)
	r, err := s.Verify(t.Context())
	require.NoError(t, err)
	assert.Empty(t, r.Missing)
	assert.Empty(t, r.Corrupt)
}

func TestWhatAnEarlierProcessLeftInStockIsNeverUsed(t *testing.T) {
	root := t.TempDir()
	left := filepath.Join(root, stockSubdir, "00000000-0000-4000-8000-000000000000")
	require.NoError(t, os.MkdirAll(filepath.Dir(left), 0o700))
	require.NoError(t, os.WriteFile(left, []byte("half a manifest"), 0o600))
	s := open(t, root, layout.Options{})
	push(t, s, "a/b", []byte("first"))
	stocked(t, root)
	assert.NoFileExists(t, left)
}

func TestThingsFromStockAreAsNewAsTheirUpload(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	push(t, s, "a/b", []byte("first"))
	stocked(t, root)
	long := time.Now().Add(-2 * layout.UploadLifetime)
	entries, err := os.ReadDir(filepath.Join(root, stockSubdir))
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.Chtimes(filepath.Join(root, stockSubdir, e.Name()), long, long))
	}
	u, err := s.NewUpload("a/b")
	require.NoError(t, err)
	u.Release()
	empty := push(t, s, "a/b", nil)
	_, err = s.Collect(t.Context(), layout.CollectOptions{})
	require.NoError(t, err)
	_, err = s.StatBlob("a/b", empty)
	require.NoError(t, err, "a blob of now")
	u, err = s.AcquireUpload("a/b", u.ID())
	require.NoError(t, err, "an upload of now")
	u.Release()
}

func TestPushesGoOnWithoutAStock(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	push(t, s, "a/b", []byte("first"))
	stocked(t, root)
	require.NoError(t, os.RemoveAll(filepath.Join(root, stockSubdir)))
	m := put(t, s, "c/d", "v1", push(t, s, "c/d", []byte("layer")))
	got, err := s.Tagged("c/d", "v1")
	require.NoError(t, err)
	assert.Equal(t, m, got.Digest)
}
