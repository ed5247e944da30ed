package bootstrap

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

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/registrytest"
)

func TestOneBootstrapPerStateDirectory(t *testing.T) {
	dir := t.TempDir()
	running, err := journal.Running(dir)
	require.NoError(t, err)
	assert.False(t, running, "nothing has run here")

	unlock, err := journal.Lock(dir)
	require.NoError(t, err)
	for range 2 {
		running, err = journal.Running(dir)
		require.NoError(t, err)
		assert.True(t, running)
	}
	_, err = journal.Lock(dir)
	require.ErrorContains(t, err, "another dayone bootstrap")

	unlock()
	running, err = journal.Running(dir)
	require.NoError(t, err)
	assert.False(t, running)
	again, err := journal.Lock(dir)
	require.NoError(t, err, "looking at the lock does not take it")
	again()
}

func TestTakenPortsAreToldAllAtOnceWithTheirPlace(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	err = checkPorts([]listener{
		{"embedded registry", taken.Addr().String(), chosen("", "bootstrapRegistry.port", "--registry-listen")},
		{"Ignition server", taken.Addr().String(), chosen(taken.Addr().String(), "configServer.port", "--config-listen")},
	})
	found := report.Of(err)
	require.Len(t, found, 2, "%v", err)
	var places []string
	for _, f := range found {
		assert.Equal(t, "port-taken", f.Rule)
		places = append(places, f.Place())
	}
	assert.ElementsMatch(t, []string{"install-config.yaml: onClusterLayering.bootstrapRegistry.port", "--config-listen"},
		places)
}

func TestTwoServicesOnOnePortAreRefused(t *testing.T) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))
	at := chosen("", "configServer.port", "")
	require.NoError(t, checkPorts([]listener{{"embedded registry", address, at}}), "the port is free again afterwards")
	assert.Len(t, report.Of(checkPorts([]listener{{"embedded registry", address, at}, {"Ignition server", address, at}})),
		1)
}

func TestARegistryNameThatLeadsElsewhereIsRefused(t *testing.T) {
	ca, err := certs.LoadOrCreateCA(t.TempDir(), certs.CAOptions{})
	require.NoError(t, err)
	h := &host{id: &identity{ca: ca}, registryHost: net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(t)))}
	found := report.Of(h.reachRegistry(t.Context()))
	require.Len(t, found, 1)
	assert.Equal(t, "registry-unreachable", found[0].Rule)
	assert.Equal(t, installconfig.FileName, found[0].File)
}

func TestTheCertificateOfBothServicesIsRenewed(t *testing.T) {
	log := logrus.New()
	log.SetOutput(t.Output())
	in := inputWithBase("registry.example.com/ocp/base-os:1")
	in.Sidecar.Config.BootstrapRegistry.Host, in.Sidecar.Config.ConfigServer.Host = "192.0.2.1", "boot.example.com"
	in.Sidecar.Cluster = installconfig.Cluster{Name: "c", BaseDomain: "example.com"}
	h := &host{Options: Options{StateDir: t.TempDir(), Log: logrus.NewEntry(log)}, in: in, registryListen: "127.0.0.1:0"}
	require.NoError(t, h.makeIdentity(t.Context()))
	srv, err := registry.New(h.registryOptions())
	require.NoError(t, err)
	require.NoError(t, srv.Start())
	h.registry = srv
	t.Cleanup(h.stop)

	present := func() *x509.Certificate {
		c, err := tls.Dial("tcp", srv.Addr(), &tls.Config{RootCAs: h.id.ca.Pool(), MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		return c.ConnectionState().PeerCertificates[0]
	}
	for _, name := range []string{"192.0.2.1", "boot.example.com", "api-int.c.example.com", "localhost"} {
		require.NoError(t, present().VerifyHostname(name))
	}
	first := present().SerialNumber
	h.renewCertificate()
	assert.Equal(t, first, present().SerialNumber, "with time left it stays")

	pair, err := h.id.ca.ServerCertificate(append(h.names(), "127.0.0.1", "localhost", "::1"),
		certs.ServerOptions{Validity: 24 * time.Hour})
	require.NoError(t, err)
	crt, key := h.registryOptions().CertificateFiles()
	require.NoError(t, certs.WriteKeyPair(pair, crt, key))
	h.renewCertificate()
	renewed := present()
	assert.NotEqual(t, pair.Leaf.SerialNumber, renewed.SerialNumber)
	assert.Greater(t, time.Until(renewed.NotAfter), 300*24*time.Hour)
	file, err := certs.LoadServer(crt, key, time.Now())
	require.NoError(t, err)
	assert.Equal(t, renewed.SerialNumber, file.Leaf.SerialNumber, "the Ignition server reads these files")
}

func TestTheRegistryIsExemptFromTheProxy(t *testing.T) {
	cases := map[string]struct{ upper, lower, want string }{
		"nothing set": {"", "", "192.0.2.1"},
		"both spellings set": {"a.example.com, 10.0.0.0/8", "b.example.com,a.example.com",
			"a.example.com,10.0.0.0/8,b.example.com,192.0.2.1"},
		"already there": {"192.0.2.1", "", "192.0.2.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, withoutProxy(c.upper, c.lower, "192.0.2.1"))
		})
	}
}

func inputWithBase(name string) *preflight.Input {
	return &preflight.Input{Sidecar: &installconfig.Sidecar{Config: installconfig.Config{BaseImage: name}}}
}

func TestABaseOfAnotherSourceIsNotRecalled(t *testing.T) {
	h := &host{Options: Options{BaseSource: "oci:/a", Platform: "linux/amd64"}}
	h.in = inputWithBase("registry.example.com/ocp/base-os:1")
	h.base = baseResult{Digest: "sha256:aa"}
	inputs, err := h.baseInputs()
	require.NoError(t, err)
	hash, err := journal.HashOf(inputs)
	require.NoError(t, err)
	j := &journal.Journal{Records: []journal.Record{{Name: "base", Status: journal.StatusDone, InputsHash: hash,
		Output: []byte(`{"digest":"sha256:aa"}`)}}}
	h.base = baseResult{}
	assert.True(t, h.recall(j), "the source is gone, the image is here")
	h.BaseSource = "oci:/mistyped"
	assert.False(t, h.recall(j))
}
