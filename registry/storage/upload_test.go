package storage_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

func TestPushOfStoredBlob(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	used := s.Used()
	for i, tc := range []struct {
		name string
		body string
		ok   bool
	}{
		{"same bytes", "bytes", true},
		{"other bytes", "other", false},
		{"no bytes", "", false},
		{"a byte short", "byte", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			repo := fmt.Sprint("x/", i)
			u, err := s.Repository(repo).NewUpload(t.Context(), "u")
			require.NoError(t, err)
			defer func() { require.NoError(t, u.Release()) }()
			require.NoError(t, u.Append(strings.NewReader(tc.body)))
			err = u.Commit(t.Context(), d)
			if !tc.ok {
				require.ErrorIs(t, err, storage.ErrDigest)
				require.NoError(t, u.Cancel(t.Context()))
			} else {
				require.NoError(t, err)
			}
			_, err = s.Repository(repo).StatBlob(d)
			assert.Equal(t, tc.ok, err == nil)
			assert.Equal(t, used, s.Used(), "nothing was stored")
		})
	}
}

func TestUploadsAfterRestart(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	empty := push(t, s, "a/b", nil)
	u, err := s.Repository("a/b").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	require.NoError(t, u.Release())
	cut, err := s.Repository("a/b").NewUpload(t.Context(), "u")
	require.NoError(t, err)
	require.NoError(t, cut.Append(strings.NewReader("first ")))
	require.NoError(t, cut.Release())
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, cut.ID()) && !e.IsDir() && e.Name() != "data" {
			return os.WriteFile(path, nil, 0o600) // as a power cut leaves it
		}
		return err
	}))

	s = open(t, root, storage.Options{})
	size, err := s.Repository("a/b").StatBlob(empty)
	require.NoError(t, err)
	assert.Zero(t, size)
	again, err := s.Repository("a/b").Upload(t.Context(), u.ID(), "u")
	require.NoError(t, err)
	defer func() { require.NoError(t, again.Release()) }()
	require.NoError(t, again.Append(strings.NewReader("x")))
	require.NoError(t, again.Commit(t.Context(), digest.FromString("x")))
	more, err := s.Repository("a/b").Upload(t.Context(), cut.ID(), "u")
	require.NoError(t, err)
	require.NoError(t, more.Append(strings.NewReader("second")))
	require.NoError(t, more.Commit(t.Context(), digest.FromString("first second")))
	require.NoError(t, more.Release())
}

func TestDeleteBlob(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	d := push(t, s, "a/b", []byte("bytes"))
	ok, err := s.Repository("c/d").Mount(t.Context(), "a/b", d)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, s.Repository("c/d").DeleteBlob(t.Context(), d))
	_, err = s.Repository("c/d").StatBlob(d)
	require.ErrorIs(t, err, storage.ErrNotFound)
	_, err = s.Repository("a/b").StatBlob(d)
	require.NoError(t, err)
	_, err = s.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	_, err = s.Repository("a/b").StatBlob(d)
	require.ErrorIs(t, err, storage.ErrNotFound)
}
