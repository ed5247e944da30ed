package registry_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/storage"
)

// TestMaintenanceBesideServer collects, verifies and removes on the root of a running server, whose path is longer than
// that of a socket may be.
func TestMaintenanceBesideServer(t *testing.T) {
	r := registrytest.Start(t, func(o *registry.Options) { o.Root = filepath.Join(o.Root, strings.Repeat("long/", 30)) })
	loose := pushBlob(t, r, "a/b", []byte("loose"))
	pushBlob(t, r, "a/b", []byte("layer"))
	body := manifestOf(pushBlob(t, r, "a/b", []byte("{}")), 2, []byte("layer"))
	require.Equal(t, http.StatusCreated, pushManifest(t, r, "a/b", "v1", body).status)
	root, err := registry.OpenRoot(t.Context(), r.Options.Root, nil)
	require.NoError(t, err)
	kept, err := root.Collect(t.Context(), storage.CollectOptions{})
	require.NoError(t, err)
	assert.Empty(t, kept.Removed, "an hour's grace")
	removed, err := root.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	assert.Equal(t, []digest.Digest{loose}, removed.Removed)
	a := request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+loose.String(), nil)
	assert.Equal(t, http.StatusNotFound, a.status)

	d := digest.FromBytes(body)
	require.NoError(t, root.RemoveManifest(t.Context(), "a/b", d))
	assert.Equal(t, http.StatusNotFound, request(t, r, r.Pull, http.MethodGet, "/v2/a/b/manifests/v1", nil).status)
	require.ErrorContains(t, root.RemoveManifest(t.Context(), "a/b", d), "not found")
	found, err := root.Verify(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, found.Blobs)
	require.NoError(t, root.Close())
	r.Stop(t)
	_, err = os.Stat(filepath.Join(r.Options.Root, ".dayone-registry.sock"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
