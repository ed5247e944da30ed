package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/cache"
)

func write(dir string) error {
	return os.WriteFile(filepath.Join(dir, "content"), []byte("x"), 0o644)
}

func TestManyAtOnceMakeAnEntryOnce(t *testing.T) {
	s := cache.Store{Dir: t.TempDir()}
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := s.Ensure(t.Context(), "a", func(dir string) error {
				made.Add(1)
				return write(dir)
			})
			assert.NoError(t, err)
			assert.FileExists(t, filepath.Join(path, "content"))
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, made.Load())
}

func TestEnsureAfterAFailure(t *testing.T) {
	s := cache.Store{Dir: t.TempDir()}
	broken := errors.New("broken")
	_, err := s.Ensure(t.Context(), "a", func(dir string) error { return errors.Join(write(dir), broken) })
	require.ErrorIs(t, err, broken)
	left, err := filepath.Glob(filepath.Join(s.Dir, "a*"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(s.Dir, "a.lock")}, left)
	_, err = s.Ensure(t.Context(), "a", write)
	assert.NoError(t, err)
}

func TestEnsureAfterACrash(t *testing.T) {
	s := cache.Store{Dir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(s.Dir, "a.tmp-dead"), 0o755))
	_, err := s.Ensure(t.Context(), "a", write)
	require.NoError(t, err)
	assert.NoDirExists(t, filepath.Join(s.Dir, "a.tmp-dead"))
}

func TestEnsureEndsWithTheContext(t *testing.T) {
	s := cache.Store{Dir: t.TempDir()}
	_, err := s.Ensure(t.Context(), "a", func(string) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Ensure(ctx, "a", write)
		assert.ErrorIs(t, err, context.Canceled)
		return nil
	})
	assert.NoError(t, err)
}

func TestUnusedEntriesArePruned(t *testing.T) {
	s := cache.Store{Dir: t.TempDir()}
	old := time.Now().Add(-cache.KeepUnused - time.Hour)
	for _, name := range []string{"unused", "used"} {
		path, err := s.Ensure(t.Context(), name, write)
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(path, old, old))
	}
	_, err := s.Ensure(t.Context(), "used", write)
	require.NoError(t, err)
	_, err = s.Ensure(t.Context(), "new", write)
	require.NoError(t, err)
	assert.NoDirExists(t, filepath.Join(s.Dir, "unused"))
	assert.DirExists(t, filepath.Join(s.Dir, "used"))
}

func TestDir(t *testing.T) {
	t.Setenv(cache.Env, "/somewhere")
	dir, err := cache.Dir()
	require.NoError(t, err)
	assert.Equal(t, "/somewhere", dir)
	t.Setenv(cache.Env, "")
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	dir, err = cache.Dir()
	require.NoError(t, err)
	assert.Equal(t, "/xdg/dayone", dir)
}
