package layout_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/layout"
)

func TestATagThatWasMovedByAPushThatFailedIsServedAsItIsOnDisk(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, layout.Options{})
	put(t, s, "a/b", "a", push(t, s, "a/b", []byte("old")))
	_, err := s.Tagged("a/b", "a") // from memory from now on
	require.NoError(t, err)
	body := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
	// The second tag cannot be written, as on a full disk: a file stands where its directory would be.
	require.NoError(t, os.WriteFile(filepath.Join(root, layout.Subdirectory, "repositories/a/b/_manifests/tags/b"), nil,
		0o600))
	require.Error(t, s.PutManifest(layout.Put{Repository: "a/b", Digest: digest.FromBytes(body), Tags: []string{"a", "b"},
		Body: body}))
	now, err := s.Tagged("a/b", "a")
	require.NoError(t, err)

	require.NoError(t, s.Close())
	later, err := open(t, root, layout.Options{}).Tagged("a/b", "a")
	require.NoError(t, err)
	assert.Equal(t, later.Digest, now.Digest, "a restart changes nothing")
	assert.Equal(t, digest.FromBytes(body), now.Digest)
}
