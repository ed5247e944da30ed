package buildahengine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/buildahengine"
)

// A storage that has lost under which digests it pulled the base is filled anew, and the image keeps the base's layers.
func TestLostDigestsOfTheBase(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	first := b.build("FROM configs\nRUN echo one >/usr/lib/one\n")
	require.NoError(t, os.RemoveAll(filepath.Join(b.root, "blob-info")))
	second := b.build("FROM configs\nRUN echo two >/usr/lib/two\n")
	assert.Equal(t, first.Layers[:2], second.Layers[:2])
	assert.NoFileExists(t, filepath.Join(b.root, "renew"))
	third := b.build("FROM configs\nRUN echo two >/usr/lib/two\nRUN echo three >/usr/lib/three\n")
	assert.Equal(t, 1, third.CacheHits, "the new storage is kept")
	b.clean()
}
