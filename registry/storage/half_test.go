package storage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/storage"
)

func TestTagOfFailedPush(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, storage.Options{})
	put(t, s, "a/b", "a", push(t, s, "a/b", []byte("old")))
	_, err := s.Repository("a/b").Tagged("a") // from memory from now on
	require.NoError(t, err)
	body := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
	// The second tag cannot be written, as on a full disk: a file stands where its directory would be.
	require.NoError(t, os.WriteFile(filepath.Join(root, storage.Subdirectory, "repositories/a/b/_manifests/tags/b"), nil,
		0o600))
	require.Error(
		t,
		s.Repository("a/b").
			PutManifest(t.Context(), storage.Put{MediaType: v1.MediaTypeImageIndex, Digest: digest.FromBytes(body),
				Tags: []string{"a", "b"},
				Body: body}),
	)
	now, err := s.Repository("a/b").Tagged("a")
	require.NoError(t, err)

	later, err := open(t, root, storage.Options{}).Repository("a/b").Tagged("a")
	require.NoError(t, err)
	assert.Equal(t, later.Digest, now.Digest, "a restart changes nothing")
	assert.Equal(t, digest.FromBytes(body), now.Digest)
}
