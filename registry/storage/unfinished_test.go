package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

func start(t *testing.T, s *storage.Store, owner, data string) *storage.Upload {
	t.Helper()
	u, err := s.Repository("a/b").NewUpload(t.Context(), owner)
	require.NoError(t, err)
	require.NoError(t, u.Append(strings.NewReader(data)))
	return u
}

func TestIdleUploads(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{UploadIdle: time.Nanosecond})
	idle, busy := start(t, s, "u", "12345"), start(t, s, "u", "123")
	require.NoError(t, idle.Release())
	ended, err := s.EndIdleUploads(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, ended)
	assert.Less(t, s.Used(), int64(3+5), "what it took is free")
	assert.Equal(t, 1, s.Uploads())
	_, err = s.Repository("a/b").Upload(t.Context(), idle.ID(), "u")
	require.ErrorIs(t, err, storage.ErrNotFound)
	require.NoError(t, busy.Append(strings.NewReader("4")), "one in use goes on")
	require.NoError(t, busy.Release())

	ended, err = open(t, root, storage.Options{}).EndIdleUploads(t.Context())
	require.NoError(t, err)
	assert.Zero(t, ended, "an hour is the default")
}

func TestUploadOwner(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	u := start(t, s, "one", "12345")
	require.NoError(t, u.Release())
	for range 2 {
		r := s.Repository("a/b")
		_, err := r.Upload(t.Context(), u.ID(), "two")
		require.ErrorIs(t, err, storage.ErrNotFound)
		_, err = s.Repository("c/d").Upload(t.Context(), u.ID(), "one")
		require.ErrorIs(t, err, storage.ErrNotFound)
		for _, owner := range []string{"one", ""} {
			found, err := r.Upload(t.Context(), u.ID(), owner)
			require.NoError(t, err)
			assert.Equal(t, int64(5), found.Size())
			require.NoError(t, found.Release())
		}
		s = open(t, root, storage.Options{}) // and after a restart
	}
}

// What was being fetched from an upstream is fetched anew after a restart: nobody continues it.
func TestFetchAfterRestart(t *testing.T) {
	root := t.TempDir()
	u := start(t, open(t, root, storage.Options{}), storage.FetchOwner, "12345")
	require.NoError(t, u.Release())
	s := open(t, root, storage.Options{})
	assert.Zero(t, s.Uploads())
	assert.Zero(t, s.Used())
	left, err := os.ReadDir(filepath.Join(root, storage.Subdirectory, "repositories/a/b/_uploads"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestUploadsOfOneAccount(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{MaxUploads: 2})
	first, second := start(t, s, "u", ""), start(t, s, "u", "")
	_, err := s.Repository("c/d").NewUpload(t.Context(), "u")
	require.ErrorIs(t, err, storage.ErrTooManyUploads)
	other := start(t, s, "v", "")
	require.NoError(t, first.Cancel(t.Context()))
	require.NoError(t, first.Release())
	third := start(t, s, "u", "")
	for _, u := range []*storage.Upload{second, third, other} {
		require.NoError(t, u.Release())
	}
}

// TestSmallUploads has 300 uploads of one byte under way: none of them keeps room or an open file from the others.
func TestSmallUploads(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{MaxBytes: 16 << 20})
	var all []*storage.Upload
	for range 300 {
		all = append(all, start(t, s, "u", "1"))
	}
	require.NoError(t, s.Room(15<<20))
	for _, u := range all {
		require.NoError(t, u.Release())
	}
	assert.Equal(t, int64(300), s.Used())
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	assert.Less(t, len(open), 200)
}

// TestClockSetBack has a blob, an upload and a cached manifest from a time to come: each ends as those of now do.
func TestClockSetBack(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{UploadIdle: time.Hour})
	loose := push(t, s, "a/b", []byte("loose"))
	config := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
	cached := storage.Put{Digest: digest.FromString(config), MediaType: "application/vnd.oci.image.index.v1+json",
		Body: []byte(config), Cached: true}
	require.NoError(t, s.Repository("a/b").PutManifest(t.Context(), cached))
	upload := start(t, s, "u", "12345")
	require.NoError(t, upload.Release())
	future := time.Now().Add(365 * 24 * time.Hour)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, future, future)
	}))
	s = open(t, root, storage.Options{UploadIdle: time.Hour})
	assert.Equal(t, 1, s.Uploads())
	kept, err := s.Collect(t.Context(), storage.CollectOptions{})
	require.NoError(t, err)
	assert.Empty(t, kept.Removed, "its grace begins anew")
	fi, err := os.Stat(blobFile(root, loose))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), fi.ModTime(), time.Minute)
	require.NoError(t, storage.NoteUse(s.Repository("a/b"), cached.Digest))
	listed, err := storage.ListCached(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	assert.WithinDuration(t, time.Now(), listed[0].Used, time.Minute)
	s = open(t, root, storage.Options{UploadIdle: time.Nanosecond})
	_, err = s.EndIdleUploads(t.Context())
	require.NoError(t, err)
	assert.Zero(t, s.Uploads(), "idle from now on, whatever the file says")
}
