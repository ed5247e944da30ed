package registry_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// untilCut makes requests one after another until the server is gone, tells how many were answered with 201, and calls
// each at every one.
func untilCut(t *testing.T, r *registrytest.Registry, next func(i int) (method, path string, body []byte),
	each func(done int)) int {
	t.Helper()
	tr := r.Transport(t)
	for i := 0; ; i++ {
		method, path, body := next(i)
		req, err := http.NewRequestWithContext(context.Background(), method, r.URL()+path, bytes.NewReader(body))
		require.NoError(t, err)
		req.SetBasicAuth(r.Push.Name, r.Push.Password)
		req.Header.Set("Content-Type", ociManifest)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return i
		}
		_, _ = io.Copy(io.Discard, resp.Body) // it has none
		_ = resp.Body.Close()
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		each(i + 1)
	}
}

func TestKillDuringMountOrManifest(t *testing.T) {
	u, err := registry.NewUser("push", registry.RolePush)
	require.NoError(t, err)
	for _, kind := range []string{"mount", "manifest"} {
		for _, after := range []int{3, 17, 40} {
			t.Run(fmt.Sprintf("%s %d", kind, after), func(t *testing.T) {
				root := t.TempDir()
				cmd, r := child(t, root, u)
				config := pushBlob(t, r, "a/base", []byte("{}"))
				layer := pushBlob(t, r, "a/base", []byte("layer"))
				manifest := func(i int) []byte { // every one another
					return []byte(strings.Replace(string(manifestOf(config, 2, []byte("layer"))), `]}`, `],"annotations":{"i":"`+itoa(i)+`"}}`, 1))
				}
				next := func(i int) (string, string, []byte) {
					if kind == "mount" {
						return http.MethodPost, fmt.Sprintf("/v2/a/app%d/blobs/uploads/?from=a/base&mount=%s", i, layer), nil
					}
					return http.MethodPut, fmt.Sprintf("/v2/a/base/manifests/v%d", i), manifest(i)
				}
				var enough atomic.Bool
				killed := make(chan error, 1)
				answered := untilCut(t, r, next, func(done int) {
					if done >= after && !enough.Swap(true) { // beside the requests that follow: it hits one at any point
						go func() { killed <- cmd.Process.Signal(syscall.SIGKILL) }()
					}
				})
				require.NoError(t, <-killed)
				_ = cmd.Wait() // it was killed, that is its error

				_, r = child(t, root, u)
				for i := range answered + 1 {
					if kind == "mount" {
						got := request(t, r, u, http.MethodGet, fmt.Sprintf("/v2/a/app%d/blobs/%s", i, layer), nil)
						whole(t, got, layer, i < answered)
					} else {
						got := request(t, r, u, http.MethodGet, fmt.Sprintf("/v2/a/base/manifests/v%d", i), nil)
						whole(t, got, digest.FromBytes(manifest(i)), i < answered)
					}
				}
				method, path, body := next(answered)
				again := request(t, r, u, method, path, bytes.NewReader(body), "Content-Type", ociManifest)
				assert.Equal(t, http.StatusCreated, again.status, "what was cut can be sent again: %s", again.body)
			})
		}
	}
}

// whole: what was answered is there; what was cut is there with all its bytes, or not at all.
func whole(t *testing.T, got answer, d digest.Digest, answered bool) {
	t.Helper()
	if !answered && got.status == http.StatusNotFound {
		return
	}
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.Equal(t, d, digest.FromBytes(got.body))
}
