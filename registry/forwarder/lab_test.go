package forwarder_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/forwarder"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
)

const repo = "ocp/worker-os"

var ownAccount = credentials.Account{Username: "forwarder", Password: "canary-of-loopback"}

// lab is a control plane of registries behind fault proxies, and a node's forwarder.
type lab struct {
	peers []*peer // in the node's order
	list  peers.List
	o     forwarder.Options
	f     *forwarder.Forwarder
}

// peer is a real registry with a proxy before it that tests spoil.
type peer struct {
	*faultproxy.Proxy
	registry *registrytest.Registry
	server   *httptest.Server
	requests *requests
}

// newLab starts n peers with one CA and one account.
func newLab(t testing.TB, n int, change ...func(*registry.Options)) *lab {
	t.Helper()
	dir, host := t.TempDir(), registrytest.HostAddress(t)
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(t, err)
	pair, err := ca.ServerCertificate([]string{host}, certs.ServerOptions{})
	require.NoError(t, err)
	l := &lab{o: forwarder.Options{Node: "worker-0", PeersFile: filepath.Join(dir, "peers.json"),
		CertsDirs: []string{filepath.Join(dir, "missing"), filepath.Join(dir, "certs.d")},
		AuthFiles: []string{filepath.Join(dir, "missing.json"), filepath.Join(dir, "auth.json")}, Listen: "127.0.0.1:0",
		StateFile: filepath.Join(dir, "run", "forwarder.json"), Account: ownAccount}}
	l.list.Registry = "api-int.c.example.com:22626"
	require.NoError(t, os.MkdirAll(filepath.Dir(l.caFile()), 0o755))
	require.NoError(t, os.WriteFile(l.caFile(), ca.CertificatePEM(), 0o600))
	account := credentials.Account{Username: "puller", Password: "canary-of-the-peers"}
	auth, err := credentials.Encode(account, l.list.Registry)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(l.authFile(), auth, 0o600))
	byName := map[string]*peer{}
	for i := range n {
		r := registrytest.Start(t, append(change, func(o *registry.Options) {
			o.Users = append(o.Users, registry.User{Name: account.Username, Password: account.Password, Role: registry.RolePull})
		})...)
		proxy, err := faultproxy.To(r.URL(), r.Transport(t))
		require.NoError(t, err)
		p := &peer{Proxy: proxy, registry: r, requests: &requests{next: proxy}}
		p.server = serveTLS(t, host, pair, p.requests)
		name := "master-" + string(rune('0'+i))
		byName[name] = p
		l.list.Peers = append(l.list.Peers, peers.Peer{Name: name, Address: p.server.Listener.Addr().String()})
	}
	require.NoError(t, l.list.Write(l.o.PeersFile))
	l.list.Peers = l.list.Order(l.o.Node, time.Now(), nil)
	for _, p := range l.list.Peers {
		l.peers = append(l.peers, byName[p.Name])
	}
	l.f = l.new(t)
	return l
}

func (l *lab) caFile() string { return filepath.Join(l.o.CertsDirs[1], l.list.Registry, "ca.crt") }

func (l *lab) authFile() string { return l.o.AuthFiles[1] }

func (l *lab) new(t testing.TB) *forwarder.Forwarder {
	t.Helper()
	f, err := forwarder.New(l.o)
	require.NoError(t, err)
	// Not for tests that measure time: so that those of peers that hang end soon.
	f.Shorten(500*time.Millisecond, 500*time.Millisecond, 5*time.Second)
	return f
}

func serveTLS(t testing.TB, host string, pair tls.Certificate, h http.Handler) *httptest.Server {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(h)
	require.NoError(t, s.Listener.Close())
	s.Listener, s.TLS = ln, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// blob pushes random bytes to each of the peers.
func (l *lab) blob(t testing.TB, size int, to ...int) ([]byte, digest.Digest) {
	t.Helper()
	data := make([]byte, size)
	_, err := rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	require.NoError(t, err)
	if len(to) == 0 {
		for i := range l.peers {
			to = append(to, i)
		}
	}
	d := digest.FromBytes(data)
	for _, i := range to {
		r := l.peers[i].registry
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			r.URL()+"/v2/"+repo+"/blobs/uploads/?digest="+d.String(), bytes.NewReader(data))
		require.NoError(t, err)
		req.SetBasicAuth(r.Push.Name, r.Push.Password)
		resp, err := r.Transport(t).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusCreated, resp.StatusCode)
	}
	return data, d
}

// said is an answer of the forwarder.
type said struct {
	status int
	header http.Header
	body   []byte
	err    error // of reading the body
}

// ask asks the forwarder over a connection, so that broken ones are seen.
func (l *lab) ask(t testing.TB, method, path string, header ...string) said {
	t.Helper()
	s := httptest.NewServer(l.f.Handler())
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	require.NoError(t, err)
	req.SetBasicAuth(ownAccount.Username, ownAccount.Password)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return said{resp.StatusCode, resp.Header, body, err}
}

// requests keeps what a peer is asked.
type requests struct {
	next http.Handler

	mu   sync.Mutex
	seen []*http.Request
}

func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	q.seen = append(q.seen, r.Clone(r.Context()))
	q.mu.Unlock()
	q.next.ServeHTTP(w, r)
}

func (q *requests) all() []*http.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.seen)
}
