package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/certs"
)

func TestServerCertificate(t *testing.T) {
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{"127.0.0.1", "::1", "registry.example.com", "127.0.0.1"},
		certs.ServerOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{"registry.example.com"}, pair.Leaf.DNSNames)
	assert.Len(t, pair.Leaf.IPAddresses, 2)

	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(),
		MinVersion: tls.VersionTLS12}}}
	resp, err := client.Get(srv.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestCAIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	first, err := certs.LoadOrCreateCA(dir, certs.CAOptions{CommonName: "cluster"})
	require.NoError(t, err)
	second, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
	require.NoError(t, err)
	assert.Equal(t, first.CertificatePEM(), second.CertificatePEM())
	assert.Equal(t, "cluster", second.Certificate().Subject.CommonName)
	fi, err := os.Stat(filepath.Join(dir, certs.CAKeyFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
}

// What a process leaves that is killed while it makes a CA: the key under its first name, without or with the
// certificate.
func TestInterruptedCA(t *testing.T) {
	for name, certificate := range map[string]bool{"before the certificate": false, "before the key has its name": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cut, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
			require.NoError(t, err)
			require.NoError(t, os.Rename(filepath.Join(dir, certs.CAKeyFile), filepath.Join(dir, "ca.key.new")))
			if !certificate {
				require.NoError(t, os.Remove(filepath.Join(dir, certs.CACertFile)))
			}
			first, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
			require.NoError(t, err)
			assert.Equal(t, certificate, string(cut.CertificatePEM()) == string(first.CertificatePEM()))
			second, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
			require.NoError(t, err)
			assert.Equal(t, first.CertificatePEM(), second.CertificatePEM())
			assert.NoFileExists(t, filepath.Join(dir, "ca.key.new"))
		})
	}
}

func TestDamagedCA(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(dir string) error
	}{
		{"key missing", func(d string) error { return os.Remove(filepath.Join(d, certs.CAKeyFile)) }},
		{"certificate missing", func(d string) error { return os.Remove(filepath.Join(d, certs.CACertFile)) }},
		{"key of another CA", func(d string) error {
			other := filepath.Join(d, "other")
			if _, err := certs.LoadOrCreateCA(other, certs.CAOptions{}); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, certs.CAKeyFile), filepath.Join(d, certs.CAKeyFile))
		}},
		{"not PEM", func(d string) error { return os.WriteFile(filepath.Join(d, certs.CACertFile), []byte("x"), 0o644) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := certs.LoadOrCreateCA(dir, certs.CAOptions{})
			require.NoError(t, err)
			require.NoError(t, tc.damage(dir))
			_, err = certs.LoadOrCreateCA(dir, certs.CAOptions{})
			require.Error(t, err)
			assert.Contains(t, err.Error(), "restore both")
		})
	}
}

func TestValidity(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) func() time.Time { return func() time.Time { return now.Add(d) } }
	ca, err := certs.NewCA(certs.CAOptions{Now: at(0)})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{"a.example"}, certs.ServerOptions{Now: at(0), Validity: 24 * time.Hour})
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		skew time.Duration
		want string
	}{
		{"now", 0, ""},
		{"a clock half an hour behind", -30 * time.Minute, ""},
		{"a clock a day behind", -24 * time.Hour, "set the clock (chronyc makestep) or wait"},
		{"a clock from another year", -366 * 24 * time.Hour, "set the clock or make a new certificate"},
		{"two days later", 48 * time.Hour, "expired at 2026-05-02T12:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := certs.CheckServer(pair, now.Add(tc.skew))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			var v *certs.ValidityError
			require.ErrorAs(t, err, &v)
			assert.Contains(t, err.Error(), tc.want)
		})
	}
}

func TestServerValidityWithinCA(t *testing.T) {
	ca, err := certs.NewCA(certs.CAOptions{Validity: time.Hour})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{"a.example"}, certs.ServerOptions{})
	require.NoError(t, err)
	assert.Equal(t, ca.Certificate().NotAfter, pair.Leaf.NotAfter)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool()})
	require.NoError(t, err)
}

func TestInvalidHosts(t *testing.T) {
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	for _, h := range [][]string{nil, {""}, {"a b"}, {"host:5000"}, {"[::1]"}, {"a..b"}, {strings.Repeat("a", 64)}, {"-a"},
		{"a/b"}} {
		_, err := ca.ServerCertificate(h, certs.ServerOptions{})
		assert.Error(t, err, "%q", h)
	}
	_, err = ca.ServerCertificate([]string{"a.example"}, certs.ServerOptions{Validity: 825*24*time.Hour +
		time.Hour})
	assert.Error(t, err)
}

func TestKeyPairFiles(t *testing.T) {
	dir := t.TempDir()
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{"a.example"}, certs.ServerOptions{})
	require.NoError(t, err)
	crt, key := filepath.Join(dir, "s.crt"), filepath.Join(dir, "s.key")
	require.NoError(t, certs.WriteKeyPair(pair, crt, key))
	got, err := certs.LoadServer(crt, key, time.Now())
	require.NoError(t, err)
	assert.Equal(t, pair.Certificate, got.Certificate)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "no temporary file stays")
}
