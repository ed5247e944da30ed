package transfer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
)

// mute takes every request and answers none, as a load balancer before a registry that hangs.
func mute(t *testing.T) (Endpoint, *atomic.Int32) {
	t.Helper()
	var asked atomic.Int32
	proxy := faultproxy.New(http.NotFoundHandler())
	proxy.Spoil(func(w http.ResponseWriter, r *http.Request) bool {
		asked.Add(1)
		return faultproxy.Silent(w, r)
	})
	s := httptest.NewServer(proxy)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return Endpoint{Reference: "docker://" + strings.TrimPrefix(s.URL, "http://") + "/os/worker:x", Insecure: true}, &asked
}

func TestSilentRegistry(t *testing.T) {
	const limit = 100 * time.Millisecond
	e, asked := mute(t)
	_, err := inspect(t.Context(), e, "linux/amd64", limit)
	require.ErrorIs(t, err, ErrUnavailable)
	assert.True(t, Temporary(err), "%v", err)
	assert.ErrorContains(t, err, "load balancer")

	before := asked.Load()
	res, err := Copy(t.Context(), e, Endpoint{Reference: "oci:" + t.TempDir()},
		Options{Attempts: 2, Backoff: time.Millisecond, Silence: limit})
	require.ErrorIs(t, err, ErrUnavailable)
	assert.ErrorContains(t, err, "load balancer")
	assert.Equal(t, 2, res.Attempts)
	assert.Greater(t, asked.Load(), before)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = inspect(ctx, e, "linux/amd64", limit)
	require.ErrorIs(t, err, context.Canceled, "who ends it is no registry that is silent")
}
