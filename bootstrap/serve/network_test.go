package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests/render"
)

// pair writes a certificate for 127.0.0.1 and returns its files.
func pair(t testing.TB) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	rawKey, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(cert, certPEM, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certPEM))
	return cert, key, pool
}

// running starts the server and returns a function that stops it and gives Run's error.
func running(t testing.TB, s *Server) func() error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := func() error {
		cancel()
		return <-done
	}
	t.Cleanup(cancel)
	return stop
}

func TestOverTheNetwork(t *testing.T) {
	cert, key, roots := pair(t)
	agent := filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.WriteFile(agent, bytes.Repeat([]byte("x"), 1<<20), 0o600))
	dir := t.TempDir()
	tree(t, dir, aFile)
	s, err := New(Options{BaseDir: dir, SecureListen: "127.0.0.1:0", InsecureListen: "127.0.0.1:0",
		MetricsListen: "127.0.0.1:0", CertFile: cert, KeyFile: key,
		Files: map[string]string{"dayone-daemon": agent}, PollInterval: 5 * time.Millisecond})
	require.NoError(t, err)
	stop := running(t, s)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS12}}}
	fetch := func(url string) (int, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		r.Header.Set("Accept", accept35)
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, body
	}
	status, body := fetch("https://" + s.SecureAddr() + "/config/master")
	require.Equal(t, http.StatusOK, status)
	_, insecure := fetch("http://" + s.InsecureAddr() + "/config/master")
	assert.Equal(t, string(body), string(insecure))
	_, file := fetch("https://" + s.SecureAddr() + "/files/dayone-daemon")
	assert.Len(t, file, 1<<20)
	upgraded := agent + ".new"
	require.NoError(t, os.WriteFile(upgraded, []byte("another version"), 0o600))
	require.NoError(t, os.Rename(upgraded, agent))
	_, again := fetch("https://" + s.SecureAddr() + "/files/dayone-daemon")
	assert.True(t, bytes.Equal(file, again), "nodes have the hash of the one that was there when the server began")
	require.Eventually(t, func() bool { // an answer is counted when it is over, a moment after the client has it
		_, metrics := fetch("http://" + address(s.measurements) + "/metrics")
		return strings.Contains(string(metrics), `dayone_serve_requests_total{kind="config",status="200"} 2`)
	}, time.Minute, 10*time.Millisecond)

	tree(t, dir, `storage: {files: [{path: /etc/b, contents: {source: "data:,b"}}]}`)
	require.Eventually(t, func() bool {
		_, body := fetch("https://" + s.SecureAddr() + "/config/master")
		return strings.Contains(string(body), "/etc/b")
	}, time.Minute, 10*time.Millisecond, "a change on disk is noticed")

	old := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10} //nolint:gosec // must be refused
	old.MaxVersion = tls.VersionTLS11
	_, err = tls.Dial("tcp", s.SecureAddr(), old)
	require.Error(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, render.APIServerDir), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, render.APIServerDir, render.APIServerFile),
		[]byte("spec:\n  tlsSecurityProfile:\n    type: Modern\n"), 0o600))
	require.Eventually(t, func() bool {
		old := &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS12} //nolint:gosec // must be refused
		conn, err := tls.Dial("tcp", s.SecureAddr(), old)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond, "the Modern profile demands TLS 1.3")
	require.NoError(t, stop())
	_, err = net.Dial("tcp", s.SecureAddr())
	require.Error(t, err)
}

// Clients that ask for much and read nothing hold nobody else up, however many processors there are.
func TestSlowReaders(t *testing.T) {
	cert, key, roots := pair(t)
	s := newServer(t, aFile, func(o *Options) {
		o.SecureListen, o.CertFile, o.KeyFile, o.Grace = "127.0.0.1:0", cert, key, time.Millisecond
	})
	large := make([]byte, 32<<20) // more than the kernel holds for a connection
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- s.serve(ctx, tls.NewListener(s.secure, s.tlsConfig()),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(large)
			}))
	}()
	request := []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	ask := func() *tls.Conn {
		conn, err := tls.Dial("tcp", s.SecureAddr(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = conn.Write(request)
		require.NoError(t, err)
		return conn
	}
	for range 2 * runtime.GOMAXPROCS(0) {
		_, err := ask().Read(make([]byte, 1)) // the answer has begun
		require.NoError(t, err)
	}
	for range 3 {
		conn := ask()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		size, err := io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		assert.Len(t, large, int(size))
		require.NoError(t, answer.Body.Close())
		require.NoError(t, conn.Close())
	}
	cancel()
	require.Error(t, <-stopped, "the slow ones are still there")
}
