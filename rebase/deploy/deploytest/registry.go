package deploytest

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ggcrname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/credentials"
)

// Fault spoils an answer; true means that it has answered.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// Registry is a small registry over TLS with basic authentication whose answers a test can spoil.
type Registry struct {
	Addr      string // host:port
	CertsDir  string // HOST:PORT/ca.crt inside
	AuthFile  string
	Authority *Authority

	handler http.Handler
	mu      sync.Mutex
	cert    tls.Certificate
	fault   Fault
	blobs   int
}

// User and Password are the registry's only credential; Password is a canary that must not be found in any log.
const (
	User     = "puller"
	Password = "s3cret-canary"
)

// StartRegistry serves on loopback until the test ends.
func StartRegistry(t testing.TB) *Registry {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return Serve(t, l)
}

// Serve serves on l until the test ends.
func Serve(t testing.TB, l net.Listener) *Registry {
	t.Helper()
	return ServeAs(t, l, l.Addr().String())
}

// ServeAs is Serve for clients that know the registry by another host:port.
func ServeAs(t testing.TB, l net.Listener, address string) *Registry {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	g := &Registry{handler: registry.New(registry.Logger(quiet)), Addr: address, CertsDir: t.TempDir(),
		Authority: NewAuthority(t)}
	g.SetValidity(t, time.Now().Add(time.Hour))
	server := httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	server.Config.ErrorLog = quiet
	require.NoError(t, server.Listener.Close())
	server.Listener = tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			cert := g.cert
			return &cert, nil
		}})
	server.Start()
	t.Cleanup(server.Close)
	dir := filepath.Join(g.CertsDir, g.Addr)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), g.Authority.PEM, 0o644))
	auth, err := credentials.Encode(credentials.Account{Username: User, Password: Password}, g.Addr)
	require.NoError(t, err)
	g.AuthFile = filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(g.AuthFile, auth, 0o600))
	return g
}

// SetValidity gives new connections a certificate that is valid until end.
func (g *Registry) SetValidity(t testing.TB, end time.Time) {
	t.Helper()
	g.SetWindow(t, end.Add(-48*time.Hour), end)
}

// SetWindow gives new connections a certificate that is valid from begin to end.
func (g *Registry) SetWindow(t testing.TB, begin, end time.Time) {
	t.Helper()
	host, _, err := net.SplitHostPort(g.Addr)
	require.NoError(t, err)
	cert := g.Authority.Server(t, host, begin, end)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cert = cert
}

func (g *Registry) serve(w http.ResponseWriter, r *http.Request) {
	name, pass, _ := r.BasicAuth()
	if name != User || pass != Password {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	g.mu.Lock()
	fault := g.fault
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		g.blobs++
	}
	g.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	g.handler.ServeHTTP(w, r)
}

// Spoil sets what happens before every authenticated request; nil heals.
func (g *Registry) Spoil(f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = f
}

// Status is the fault of answering requests for manifests with a bare status.
func Status(code int) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.WriteHeader(code)
		return true
	}
}

// ChangeLayers is the fault of sending changed bytes for compressed layers.
func (g *Registry) ChangeLayers(change func([]byte) []byte) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		body := g.raw(r).Body.Bytes()
		if len(body) < 2 || body[0] != 0x1f || body[1] != 0x8b {
			return false
		}
		if _, err := w.Write(change(append([]byte(nil), body...))); err != nil {
			return true // the client has had enough
		}
		return true
	}
}

// Slowly is the fault of sending blobs in parts, with a pause before each.
func (g *Registry) Slowly(parts int, pause time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		body := g.raw(r).Body.Bytes()
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for part := range slices.Chunk(body, len(body)/parts+1) {
			select {
			case <-r.Context().Done():
				return true
			case <-tick.C:
			}
			if _, err := w.Write(part); err != nil {
				return true // the client has had enough
			}
			w.(http.Flusher).Flush()
		}
		return true
	}
}

// BlobGets counts the blobs asked for.
func (g *Registry) BlobGets() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.blobs
}

// raw answers a request as the unspoiled registry does.
func (g *Registry) raw(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	g.handler.ServeHTTP(rec, r)
	return rec
}

// RoundTrip reaches the registry without a network.
func (g *Registry) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	response := g.raw(r).Result()
	response.Request = r
	return response, nil
}

// Push stores img and gives host:port/path@sha256:….
func (g *Registry) Push(t testing.TB, img v1.Image, path string) string {
	t.Helper()
	ref, err := ggcrname.NewTag(g.Addr + "/" + path + ":test")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img, remote.WithTransport(g)))
	d, err := img.Digest()
	require.NoError(t, err)
	return g.Addr + "/" + path + "@" + d.String()
}
