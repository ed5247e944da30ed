package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/wanted"
)

// host is a control-plane node's files.
type host struct{ dir, config, addr, node string }

func newHost(t *testing.T) host {
	t.Helper()
	dir := t.TempDir()
	h := host{dir: dir, config: filepath.Join(dir, "config"), node: "m0",
		addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))}
	_, err := registry.LoadOrCreateUsers(h.config, h.addr)
	require.NoError(t, err)
	_, err = certs.LoadOrCreateCA(h.config, certs.CAOptions{})
	require.NoError(t, err)
	return h
}

// newHostIn is a node with the accounts and the CA of a directory.
func newHostIn(t *testing.T, shared string) host {
	t.Helper()
	dir := t.TempDir()
	h := host{dir: dir, config: filepath.Join(dir, "config"),
		addr: net.JoinHostPort(registrytest.HostAddress(t), strconv.Itoa(registrytest.Port(t)))}
	require.NoError(t, os.Mkdir(h.config, 0o700))
	for _, file := range sharedFiles() {
		bring(t, shared, h.config, file)
	}
	return h
}

// start runs the program until stop is called, which gives its error.
func (h host) start(t *testing.T) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := newCommand("test")
	c.SetArgs([]string{"--config", h.config, "--root", filepath.Join(h.dir, "root"), "--state", h.state(),
		"--listen", h.addr, "--peers", filepath.Join(h.dir, "peers.json"), "--node", h.node, "--min-free", "0",
		"--auth", filepath.Join(h.dir, poolaccounts.AuthPath)})
	c.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	h.answers(t)
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// answers waits until the program takes connections.
func (h host) answers(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", h.addr)
		if err == nil {
			_ = conn.Close() // it was only tried
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func (h host) state() string { return filepath.Join(h.dir, "state") }

// ask gives the status for an account, and the certificate that was shown; 0 where the certificate is not trusted.
func (h host) ask(t *testing.T, name, password string) (int, string) {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(h.config, "ca.crt"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h.addr+"/v2/", nil)
	require.NoError(t, err)
	req.SetBasicAuth(name, password)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.TLS.PeerCertificates[0].Issuer.CommonName
}

// TestService: accounts and the CA are replaced while it runs, it says how far it is, and it ends without an error.
func TestService(t *testing.T) {
	h := newHost(t)
	stop := h.start(t)
	require.Eventually(t, func() bool {
		r, there, err := wanted.ReadReport(filepath.Join(h.state(), wanted.ReportFile), time.Now())
		return err == nil && there && strings.Contains(r.Problem, "no list")
	}, time.Minute, 10*time.Millisecond)

	hash, err := bcrypt.GenerateFromPassword([]byte("new"), bcrypt.MinCost)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(h.config, "users"), []byte("next:"+string(hash)+":pull\n"), 0o600))
	require.Eventually(t, func() bool {
		code, _ := h.ask(t, "next", "new")
		return code == http.StatusOK
	}, time.Minute, 100*time.Millisecond)

	dir := t.TempDir()
	_, err = certs.LoadOrCreateCA(dir, certs.CAOptions{CommonName: "next CA"})
	require.NoError(t, err)
	for _, name := range []string{"ca.key", "ca.crt"} {
		require.NoError(t, os.Rename(filepath.Join(dir, name), filepath.Join(h.config, name)))
	}
	require.Eventually(t, func() bool {
		_, issuer := h.ask(t, "next", "new")
		return issuer == "next CA"
	}, time.Minute, 100*time.Millisecond)
	require.NoError(t, stop())
	require.NoError(t, h.start(t)(), "it starts again on what it has left")
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spoil  func(t *testing.T, h host)
		args   []string
		reason string
	}{
		{"no accounts", func(t *testing.T, h host) { require.NoError(t, os.Remove(filepath.Join(h.config, "users"))) }, nil,
			"node-config"},
		{"no CA", func(t *testing.T, h host) { require.NoError(t, os.Remove(filepath.Join(h.config, "ca.key"))) }, nil,
			"ca.key is missing"},
		{"accounts for all to read", func(t *testing.T, h host) {
			require.NoError(t, os.Chmod(filepath.Join(h.config, "users"), 0o644))
		}, nil, "chmod 600"},
		{"no percentage", nil, []string{"--min-free", "101"}, "--min-free must be"},
		{"no level", nil, []string{"--log-level", "loud"}, "--log-level"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			if tc.spoil != nil {
				tc.spoil(t, h)
			}
			c := newCommand("test")
			c.SetArgs(append([]string{"--config", h.config, "--root", filepath.Join(h.dir, "root"), "--state", h.state(),
				"--listen", h.addr}, tc.args...))
			c.SetErr(io.Discard)
			assert.ErrorContains(t, c.ExecuteContext(t.Context()), tc.reason)
		})
	}
}
