package deploytest

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	ggcrname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// Registry is a small registry over TLS with basic authentication whose answers a test can spoil.
type Registry struct {
	Addr     string // host:port
	CertsDir string // HOST:PORT/ca.crt inside
	AuthFile string

	server  *httptest.Server
	handler http.Handler
	mu      sync.Mutex
	fault   func(w http.ResponseWriter, r *http.Request) bool
	blobs   int
}

const user, password = "puller", "s3cret-canary"

// StartRegistry serves until the test ends.
func StartRegistry(t testing.TB) *Registry {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	g := &Registry{handler: registry.New(registry.Logger(quiet))}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	g.server.Config.ErrorLog = quiet
	g.server.StartTLS()
	t.Cleanup(g.server.Close)
	g.Addr = g.server.Listener.Addr().String()
	g.CertsDir = t.TempDir()
	g.trust(t)
	auth, err := json.Marshal(map[string]any{"auths": map[string]any{
		g.Addr: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}}})
	require.NoError(t, err)
	g.AuthFile = filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(g.AuthFile, auth, 0o600))
	return g
}

func (g *Registry) trust(t testing.TB) {
	dir := filepath.Join(g.CertsDir, g.Addr)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o644))
}

func (g *Registry) serve(w http.ResponseWriter, r *http.Request) {
	name, pass, _ := r.BasicAuth()
	if name != user || pass != password {
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

// Spoil sets what happens before every authenticated request; true means that the request is answered. nil heals.
func (g *Registry) Spoil(f func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = f
}

// BlobGets counts the blobs asked for.
func (g *Registry) BlobGets() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.blobs
}

// Raw answers a request as the unspoiled registry does, for a fault that changes the answer.
func (g *Registry) Raw(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	g.handler.ServeHTTP(rec, r)
	return rec
}

// SetCertificate replaces the server's certificate for new connections.
func (g *Registry) SetCertificate(c tls.Certificate) {
	g.server.TLS.Certificates = []tls.Certificate{c}
}

// Push stores img and gives host:port/path@sha256:….
func (g *Registry) Push(t testing.TB, img v1.Image, path string) string {
	t.Helper()
	ref, err := ggcrname.NewTag(g.Addr + "/" + path + ":test")
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: (&net.Dialer{}).DialContext}
	require.NoError(t, remote.Write(ref, img, remote.WithTransport(transport), remote.WithAuth(basic{})))
	d, err := img.Digest()
	require.NoError(t, err)
	return g.Addr + "/" + path + "@" + d.String()
}

type basic struct{}

// Authorization gives the registry's only credential.
func (basic) Authorization() (*authn.AuthConfig, error) {
	return &authn.AuthConfig{Username: user, Password: password}, nil
}
