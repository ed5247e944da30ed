package registry_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// TestStrangers fills the server with connections of one address that got a 401: clients with an account go on.
func TestStrangers(t *testing.T) {
	for _, tc := range []struct {
		name      string
		most      int // connections that the server takes
		strangers int
	}{{"few", 32, 100}, {"as many as the server takes by default", 0, 4096}} {
		t.Run(tc.name, func(t *testing.T) { meetStrangers(t, tc.most, tc.strangers) })
	}
}

func meetStrangers(t *testing.T, most, strangers int) {
	t.Helper()
	r := registrytest.Start(t, func(o *registry.Options) { o.MaxConnections = most })
	transport := r.Transport(t)
	get := func() (reused bool) {
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}), http.MethodGet, r.URL()+"/v2/", nil)
		require.NoError(t, err)
		req.SetBasicAuth(r.Pull.Name, r.Pull.Password)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return reused
	}
	assert.False(t, get())
	for i := range strangers {
		if i%256 == 0 {
			assert.True(t, get(), "while they come")
		}
		c, err := tls.Dial("tcp", r.Addr, transport.TLSClientConfig)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(c, "GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	}
	assert.True(t, get(), "a connection with an account stays")
	assert.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/", nil).status, "a new one is served")
}
