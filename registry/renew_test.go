package registry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/registrytest"
)

// presented is the serial number of the certificate that a new connection gets.
func presented(t *testing.T, addr string, pool *x509.CertPool) string {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	serial := c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	require.NoError(t, c.Close())
	return serial
}

func TestReloadCertificate(t *testing.T) {
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(o certs.ServerOptions) string {
		pair, err := ca.ServerCertificate([]string{"127.0.0.1"}, o)
		require.NoError(t, err)
		require.NoError(t, certs.WriteKeyPair(pair, crt, key))
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		require.NoError(t, err)
		return leaf.SerialNumber.String()
	}
	first := write(certs.ServerOptions{})
	user, err := registry.NewUser("pull", registry.RolePull)
	require.NoError(t, err)
	s, err := registry.New(registry.Options{Root: filepath.Join(dir, "root"), Listen: "127.0.0.1:0", CertFile: crt,
		KeyFile: key, Users: []registry.User{user}})
	require.NoError(t, err)
	require.NoError(t, s.Start())
	// The test's own context has ended by then.
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })

	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(),
		MinVersion: tls.VersionTLS12}}}
	t.Cleanup(kept.CloseIdleConnections)
	get := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+"/v2/", nil)
		require.NoError(t, err)
		req.SetBasicAuth(user.Name, user.Password)
		resp, err := kept.Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp.TLS.PeerCertificates[0].SerialNumber.String()
	}
	assert.Equal(t, first, get())

	second := write(certs.ServerOptions{})
	require.NotEqual(t, first, second)
	assert.Equal(t, first, presented(t, s.Addr(), ca.Pool()), "nothing changes before the reload")
	require.NoError(t, s.ReloadCertificate())
	assert.Equal(t, second, presented(t, s.Addr(), ca.Pool()))
	assert.Equal(t, first, get(), "a kept connection goes on")

	old := func() time.Time { return time.Now().Add(-48 * time.Hour) }
	caOfThen, err := certs.NewCA(certs.CAOptions{Now: old})
	require.NoError(t, err)
	pair, err := caOfThen.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{Now: old, Validity: 24 * time.Hour})
	require.NoError(t, err)
	require.NoError(t, certs.WriteKeyPair(pair, crt, key))
	var invalid *certs.ValidityError
	require.ErrorAs(t, s.ReloadCertificate(), &invalid)
	require.NoError(t, os.WriteFile(crt, []byte("half a fi"), 0o600))
	require.Error(t, s.ReloadCertificate())
	assert.Equal(t, second, presented(t, s.Addr(), ca.Pool()), "the one before stays")
}

func TestRenewOwnCertificate(t *testing.T) {
	r := registrytest.Start(t)
	tlsDir := filepath.Join(r.Options.Root, "tls")
	ca, err := certs.LoadOrCreateCA(tlsDir, certs.CAOptions{})
	require.NoError(t, err)
	before := presented(t, r.Addr, ca.Pool())
	require.NoError(t, r.Server.ReloadCertificate())
	assert.Equal(t, before, presented(t, r.Addr, ca.Pool()), "with time left it is kept")
	pair, err := ca.ServerCertificate([]string{"127.0.0.1", "localhost", "::1"},
		certs.ServerOptions{Validity: 24 * time.Hour})
	require.NoError(t, err)
	require.NoError(t, certs.WriteKeyPair(pair, filepath.Join(tlsDir, "server.crt"), filepath.Join(tlsDir, "server.key")))
	require.NoError(t, r.Server.ReloadCertificate())
	after := presented(t, r.Addr, ca.Pool())
	assert.NotEqual(t, before, after)
	assert.NotEqual(t, pair.Leaf.SerialNumber.String(), after, "one day is too little")
}
