package registry_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/registrytest"
)

func TestHealth(t *testing.T) {
	r := registrytest.Start(t)
	status := func(method, path string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, r.URL()+path, nil)
		require.NoError(t, err)
		resp, err := r.Transport(t).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		assert.Equal(t, http.StatusOK, status(http.MethodGet, path))
		assert.Equal(t, http.StatusOK, status(http.MethodHead, path))
		assert.Equal(t, http.StatusMethodNotAllowed, status(http.MethodPost, path))
	}
	assert.Equal(t, http.StatusUnauthorized, status(http.MethodGet, "/metrics"))
	images := filepath.Join(r.Options.Root, "docker/registry/v2")
	require.NoError(t, os.Rename(images, images+".away"))
	assert.Equal(t, http.StatusServiceUnavailable, status(http.MethodGet, "/readyz"))
	assert.Equal(t, http.StatusOK, status(http.MethodGet, "/healthz"))
	require.NoError(t, os.Rename(images+".away", images))
	assert.Equal(t, http.StatusOK, status(http.MethodGet, "/readyz"))
}

func TestMetricsOfProcessAndRequests(t *testing.T) {
	r := registrytest.Start(t)
	require.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/", nil).status)
	body := string(request(t, r, r.Pull, http.MethodGet, "/metrics", nil).body)
	for _, want := range []string{`dayone_registry_request_seconds_count{endpoint="base"} 1`,
		"process_resident_memory_bytes ", "go_goroutines ", "dayone_registry_uploads 0",
		"dayone_registry_collections_total 0", "dayone_registry_failures_total 0"} {
		assert.Contains(t, body, want)
	}
}
