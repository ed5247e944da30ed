package registry

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServerCollects lets a running server end idle uploads and collect by itself.
func TestServerCollects(t *testing.T) {
	root := t.TempDir()
	srv := own(t, root)
	pushTo(t, srv.URL, "a/b", []byte("layer"))
	code, _ := do(t, "POST", srv.URL+"/v2/a/b/blobs/uploads/?digest="+
		"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", []byte("x"), "application/octet-stream")
	require.Equal(t, 201, code)
	loose := filepath.Join(root, "docker/registry/v2/blobs/sha256/2d",
		"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881/data")
	old := time.Now().Add(-48 * time.Hour)
	require.NoError(t, os.Chtimes(loose, old, old))

	s, err := New(Options{Root: root, Listen: "127.0.0.1:0", InsecureHTTP: true,
		Users: []User{{Name: "u", Password: "p", Role: RolePush}}})
	require.NoError(t, err)
	require.NoError(t, s.openStorage())
	defer func() { require.NoError(t, s.release()) }()
	keepHouse(s.service, time.Millisecond, Options{CollectEvery: -1, ScrubEvery: -1})()
	assert.FileExists(t, loose, "negative is never")
	stop := keepHouse(s.service, time.Millisecond, Options{CollectEvery: time.Millisecond, ScrubEvery: -1})
	defer stop()
	require.Eventually(t, func() bool {
		_, err := os.Stat(loose)
		return os.IsNotExist(err)
	}, time.Minute, time.Millisecond)
	code, _ = do(t, "GET", srv.URL+"/v2/a/b/manifests/v1", nil, "")
	assert.Equal(t, 200, code)
}
