package registrytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
)

// shutdownTimeout bounds the wait for a test's clients at its end; it is for a busy machine.
const shutdownTimeout = time.Minute

// Registry is a running registry and how to reach it.
type Registry struct {
	// Server runs until the test ends, or until Stop.
	Server *registry.Server
	// Options are those the server was made with.
	Options registry.Options
	// Addr is HOST:PORT; it stays the same over Restart.
	Addr string
	// CAFile is the CA certificate in PEM.
	CAFile string
	// CertsDir is a directory in the form of /etc/containers/certs.d: CertsDir/Addr/ca.crt.
	CertsDir string
	// PushAuthFile and PullAuthFile are in the form of auth.json (pull secret), mode 0600.
	PushAuthFile, PullAuthFile string
	// Push and Pull are the accounts.
	Push, Pull registry.User
}

// Start runs a registry until the test ends. change may alter the options before the start.
func Start(t testing.TB, change ...func(*registry.Options)) *Registry {
	t.Helper()
	dir := t.TempDir()
	push, err := registry.NewUser("push", registry.RolePush)
	require.NoError(t, err)
	pull, err := registry.NewUser("pull", registry.RolePull)
	require.NoError(t, err)
	// The port is the test's own, so that a restart finds it free.
	o := registry.Options{Root: filepath.Join(dir, "root"), Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(Port(t))),
		Users: []registry.User{push, pull}}
	for _, c := range change {
		c(&o)
	}
	r := &Registry{Options: o, Push: push, Pull: pull}
	r.run(t)
	r.Options.Listen = r.Addr // a restart takes the same port
	r.CAFile = o.CAFile()
	if !o.InsecureHTTP {
		r.CertsDir = filepath.Join(dir, "certs.d")
		sub := filepath.Join(r.CertsDir, r.Addr)
		require.NoError(t, os.MkdirAll(sub, 0o755))
		ca, err := os.ReadFile(r.CAFile)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(sub, "ca.crt"), ca, 0o644))
	}
	r.PushAuthFile = filepath.Join(dir, "push-auth.json")
	r.PullAuthFile = filepath.Join(dir, "pull-auth.json")
	WriteAuthFile(t, r.PushAuthFile, r.Addr, push)
	WriteAuthFile(t, r.PullAuthFile, r.Addr, pull)
	t.Cleanup(func() { r.Stop(t) })
	return r
}

func (r *Registry) run(t testing.TB) {
	t.Helper()
	s, err := registry.New(r.Options)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	r.Server, r.Addr = s, s.Addr()
}

// Stop shuts the server down; clients under way get a minute.
func (r *Registry) Stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	require.NoError(t, r.Server.Shutdown(ctx))
}

// Restart stops the server and starts a new one on the same root and port.
func (r *Registry) Restart(t testing.TB) {
	t.Helper()
	r.Stop(t)
	r.run(t)
}

// URL is the address with its scheme.
func (r *Registry) URL() string {
	if r.Options.InsecureHTTP {
		return "http://" + r.Addr
	}
	return "https://" + r.Addr
}

// Pusher makes a client of go-containerregistry push with the push account.
func (r *Registry) Pusher(t testing.TB) []remote.Option {
	t.Helper()
	return []remote.Option{remote.WithTransport(r.Transport(t)),
		remote.WithAuth(&authn.Basic{Username: r.Push.Name, Password: r.Push.Password})}
}

// Transport trusts the registry's CA and nothing else.
func (r *Registry) Transport(t testing.TB) *http.Transport {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	if !r.Options.InsecureHTTP {
		ca, err := os.ReadFile(r.CAFile)
		require.NoError(t, err)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(ca))
		tr.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// WriteAuthFile writes an auth.json with one entry.
func WriteAuthFile(t testing.TB, path, addr string, u registry.User) {
	t.Helper()
	require.NoError(t, u.WriteAuthFile(path, addr))
}
