package day1

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func TestReachRefusesNameOfAnotherHost(t *testing.T) {
	ca, err := certs.LoadOrCreateCA(t.TempDir(), certs.CAOptions{})
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
	found := report.Of(reach(t.Context(), address, ca.CertificatePEM()))
	require.Len(t, found, 1)
	assert.Equal(t, "registry-unreachable", found[0].Rule)
	assert.Equal(t, installconfig.FileName, found[0].File)
	require.ErrorContains(t, reach(t.Context(), "no host:1", nil), "ask the embedded registry")
}

func TestRegistryRenewsCertificate(t *testing.T) {
	log := logrus.New()
	log.SetOutput(t.Output())
	names := []string{"192.0.2.1", "boot.example.com", "api-int.c.example.com"}
	h := Host{Options: Options{StateDir: t.TempDir(), Log: logrus.NewEntry(log)}, Registry: "192.0.2.1:5000",
		Listen: "127.0.0.1:0", Names: names, In: &preflight.Input{Set: &manifests.Set{}}}
	id, err := h.makeIdentity(t.Context())
	require.NoError(t, err)
	r, err := startRegistry(t.Context(), h, id)
	require.NoError(t, err)
	t.Cleanup(r.stop)
	ca, err := certs.LoadOrCreateCA(IdentityDir(h.StateDir), certs.CAOptions{})
	require.NoError(t, err)

	present := func() *x509.Certificate {
		c, err := tls.Dial("tcp", r.server.Addr(), &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		return c.ConnectionState().PeerCertificates[0]
	}
	for _, name := range append(names, "localhost") {
		require.NoError(t, present().VerifyHostname(name))
	}
	first := present().SerialNumber
	r.RenewCertificate()
	assert.Equal(t, first, present().SerialNumber, "with time left it stays")

	pair, err := ca.ServerCertificate(append(names, "127.0.0.1", "localhost", "::1"),
		certs.ServerOptions{Validity: 24 * time.Hour})
	require.NoError(t, err)
	crt, key := r.Certificate()
	require.NoError(t, certs.WriteKeyPair(pair, crt, key))
	r.RenewCertificate()
	renewed := present()
	assert.NotEqual(t, pair.Leaf.SerialNumber, renewed.SerialNumber)
	assert.Greater(t, time.Until(renewed.NotAfter), 300*24*time.Hour)
	file, err := certs.LoadServer(crt, key, time.Now())
	require.NoError(t, err)
	assert.Equal(t, renewed.SerialNumber, file.Leaf.SerialNumber, "the Ignition server reads these files")
}

func TestLockOutEndsAccounts(t *testing.T) {
	r := registrytest.Start(t)
	look := func() error {
		_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: r.Addr + "/os/none:x", CAFile: r.CAFile,
			AuthFile: r.PullAuthFile}, "linux/amd64")
		return err
	}
	require.ErrorIs(t, look(), transfer.ErrNotFound, "the account is good")
	require.NoError(t, (&Registry{server: r.Server}).LockOut())
	require.ErrorIs(t, look(), transfer.ErrUnauthorized)
}
