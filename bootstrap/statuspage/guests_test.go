package statuspage_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/statuspage"
	"dayone.dev/dayone/registry/certs"
)

// Clients without a token that open connections and say nothing keep nobody out who has one, wherever they come from,
// and do not end a connection on which the token was shown.
func TestSlowClientsKeepNobodyOut(t *testing.T) {
	address, dir := page(t, &statuspage.Collector{})
	host := strings.TrimPrefix(address, "https://")
	ca, err := os.ReadFile(filepath.Join(dir, certs.CACertFile))
	require.NoError(t, err)
	token, err := os.ReadFile(filepath.Join(dir, statuspage.TokenFile))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	owner := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(owner.CloseIdleConnections)
	looks := func(by *http.Transport) (reused bool) {
		t.Helper()
		// slow clients that all have their turn first take longer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}), http.MethodGet, address+"/status.json", nil)
		require.NoError(t, err)
		r.SetBasicAuth("owner", strings.TrimSpace(string(token)))
		answer, err := by.RoundTrip(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		buf := make([]byte, 1<<20)
		for err == nil {
			_, err = answer.Body.Read(buf)
		}
		require.NoError(t, answer.Body.Close())
		return reused
	}
	assert.False(t, looks(owner))
	for i := range 1000 {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.1.%d", 1+i%200))}}
		c, err := from.DialContext(t.Context(), "tcp", host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	assert.True(t, looks(owner), "the connection with a token stays")
	another := owner.Clone()
	t.Cleanup(another.CloseIdleConnections)
	assert.False(t, looks(another), "a new one is served")
	for range 100 {
		c, err := net.Dial("tcp", host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	assert.False(t, looks(func() *http.Transport { n := owner.Clone(); t.Cleanup(n.CloseIdleConnections); return n }()),
		"also from the address of slow ones")
}
