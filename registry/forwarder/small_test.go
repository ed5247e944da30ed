package forwarder_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
)

// image pushes an image with a tag, and one that refers to it, to the peers.
func (l *lab) image(t testing.TB, layer, layers int64, to ...int) v1.Image {
	t.Helper()
	img, err := random.Image(layer, layers)
	require.NoError(t, err)
	desc, err := partial.Descriptor(img)
	require.NoError(t, err)
	signature, err := random.Image(100, 1)
	require.NoError(t, err)
	referrer := mutate.Subject(signature, *desc).(v1.Image)
	if len(to) == 0 {
		for i := range l.peers {
			to = append(to, i)
		}
	}
	for _, i := range to {
		r := l.peers[i].registry
		o := r.Pusher(t)
		ref, err := name.ParseReference(r.Addr + "/" + repo + ":v1")
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, img, o...))
		d, err := referrer.Digest()
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref.Context().Digest(d.String()), referrer, o...))
	}
	return img
}

func digestOf(t testing.TB, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	require.NoError(t, err)
	return d.String()
}

// refused is the error of an answer: its code, and what each peer said.
func refused(t testing.TB, s said) (code string, peers map[string]string) {
	t.Helper()
	var e struct {
		Errors []struct {
			Code   string
			Detail []struct{ Peer, Answer string }
		}
	}
	require.NoError(t, json.Unmarshal(s.body, &e), "%s", s.body)
	require.Len(t, e.Errors, 1)
	peers = map[string]string{}
	for _, d := range e.Errors[0].Detail {
		peers[d.Peer] = d.Answer
	}
	return e.Errors[0].Code, peers
}

func TestManifests(t *testing.T) {
	l := newLab(t, 3)
	img := l.image(t, 1000, 2)
	d, base := digestOf(t, img), "/v2/"+repo
	raw, err := img.RawManifest()
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	layer, err := layers[0].Digest()
	require.NoError(t, err)
	for _, c := range []struct {
		name, method, path string
		body               string
	}{
		{"by digest", http.MethodGet, "/manifests/" + d, string(raw)},
		{"by tag", http.MethodGet, "/manifests/v1", string(raw)},
		{"head", http.MethodHead, "/manifests/" + d, ""},
		{"head of a tag", http.MethodHead, "/manifests/v1", ""},
		{"head of a blob", http.MethodHead, "/blobs/" + layer.String(), ""},
		{"tags", http.MethodGet, "/tags/list", `{"name":"` + repo + `","tags":["v1"]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := l.peers[0].registry
			req := httptest.NewRequest(c.method, want.URL()+base+c.path, nil)
			req.RequestURI = ""
			req.SetBasicAuth("puller", "canary-of-the-peers")
			direct, err := want.Transport(t).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, direct.Body.Close())
			for _, fault := range []faultproxy.Fault{nil, faultproxy.Cut, faultproxy.Status(500), faultproxy.Elsewhere} {
				l.peers[0].Spoil(fault)
				got := l.ask(t, c.method, base+c.path)
				require.NoError(t, got.err)
				assert.Equal(t, http.StatusOK, got.status)
				assert.Equal(t, c.body, strings.TrimSpace(string(got.body)))
				for _, h := range []string{"Content-Type", "Content-Length", "Docker-Content-Digest"} {
					assert.Equal(t, direct.Header.Get(h), got.header.Get(h), h)
				}
			}
		})
	}
	t.Run("referrers", func(t *testing.T) {
		got := l.ask(t, http.MethodGet, base+"/referrers/"+d)
		var index v1.IndexManifest
		require.NoError(t, json.Unmarshal(got.body, &index))
		assert.Len(t, index.Manifests, 1)
	})
}

func TestLyingManifests(t *testing.T) {
	l := newLab(t, 2)
	img := l.image(t, 1000, 1)
	raw, err := img.RawManifest()
	require.NoError(t, err)
	p := l.peers[0]
	for _, c := range []struct {
		name  string
		fault faultproxy.Fault
	}{
		{"a bit", p.Changed(flipped)},
		{"a half", p.Changed(halved)},
		{"too large", p.Changed(func(b []byte) []byte { return append(b, make([]byte, 5<<20)...) })},
		{"without an end", faultproxy.Endless},
		{"a portal", faultproxy.Text("<html>")},
	} {
		for _, ref := range []string{digestOf(t, img), "v1"} {
			t.Run(c.name+" of "+ref[:2], func(t *testing.T) {
				l.f = l.new(t)
				p.Spoil(c.fault)
				got := l.ask(t, http.MethodGet, "/v2/"+repo+"/manifests/"+ref)
				assert.Equal(t, http.StatusOK, got.status)
				assert.Equal(t, string(raw), string(got.body))
				assert.NotEmpty(t, l.f.State().Peers[1].LastError)
			})
		}
	}
}

func TestNobodyHasIt(t *testing.T) {
	l := newLab(t, 3)
	img := l.image(t, 1000, 1, 2)
	base, d := "/v2/"+repo, digestOf(t, img)
	got := l.ask(t, http.MethodGet, base+"/manifests/"+d)
	assert.Equal(t, http.StatusOK, got.status, "the last one has it")
	none := "sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct{ name, path, code string }{
		{"manifest", "/manifests/" + none, "MANIFEST_UNKNOWN"},
		{"tag", "/manifests/v2", "MANIFEST_UNKNOWN"},
		{"blob", "/blobs/" + none, "BLOB_UNKNOWN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := l.ask(t, http.MethodGet, base+c.path)
			assert.Equal(t, http.StatusNotFound, got.status)
			code, peers := refused(t, got)
			assert.Equal(t, c.code, code)
			assert.Len(t, peers, 3, "who was asked")
			assert.Equal(t, http.StatusNotFound, l.ask(t, http.MethodHead, base+c.path).status)
			assert.Zero(t, l.f.State().Peers[0].Failures, "that is an answer")
		})
	}
	l.peers[1].server.Close()
	got = l.ask(t, http.MethodGet, base+"/manifests/"+none)
	assert.Equal(t, http.StatusNotFound, got.status, "one that is away does not hold up the others' answer")
	_, peers := refused(t, got)
	assert.Contains(t, peers[l.list.Peers[1].Name], "refused")
	l.peers[0].server.Close()
	l.peers[2].server.Close()
	got = l.ask(t, http.MethodGet, base+"/manifests/"+d)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	code, peers := refused(t, got)
	assert.Equal(t, "UNAVAILABLE", code)
	assert.Len(t, peers, 3)
}

func TestWhatIsNotServed(t *testing.T) {
	l := newLab(t, 1)
	for _, c := range []struct {
		name, method, path string
		status             int
	}{
		{"base", http.MethodGet, "/v2/", 200},
		{"a push", http.MethodPost, "/v2/" + repo + "/blobs/uploads/", 405},
		{"a deletion", http.MethodDelete, "/v2/" + repo + "/manifests/v1", 405},
		{"a list of all", http.MethodGet, "/v2/_catalog", 404},
		{"metrics", http.MethodGet, "/metrics", 404},
		{"a path out of the API", http.MethodGet, "/v2/a/%2e%2e/%2e%2e/metrics", 404},
		{"a name in capitals", http.MethodGet, "/v2/A/manifests/v1", 404},
		{"no digest", http.MethodGet, "/v2/a/blobs/sha256:1", 400},
		{"an unknown hash", http.MethodGet, "/v2/a/blobs/md5:" + strings.Repeat("0", 32), 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.status, l.ask(t, c.method, c.path).status)
			assert.Empty(t, l.peers[0].requests.all(), "no peer is bothered")
		})
	}
}

// The client's account ends at the forwarder, and the peers' account never leaves it.
func TestAccountsAreApart(t *testing.T) {
	l := newLab(t, 2)
	img := l.image(t, 1000, 1)
	secrets := []string{"canary-of-the-peers", "cHVsbGVyOmNhbmFyeS1vZi10aGUtcGVlcnM="} // puller:canary-of-the-peers
	path := "/v2/" + repo + "/manifests/" + digestOf(t, img)
	for _, fault := range []faultproxy.Fault{nil, faultproxy.Status(401), faultproxy.Cut, faultproxy.Elsewhere,
		func(w http.ResponseWriter, r *http.Request) bool { // one that tells what it was shown
			w.Header().Set("Docker-Content-Digest", r.Header.Get("Authorization"))
			w.Header().Set("Www-Authenticate", r.Header.Get("Authorization"))
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}} {
		for _, p := range l.peers {
			p.Spoil(fault)
		}
		got := l.ask(t, http.MethodGet, path)
		state, err := json.Marshal(l.f.State())
		require.NoError(t, err)
		var all strings.Builder
		require.NoError(t, got.header.Write(&all))
		all.Write(got.body)
		all.Write(state)
		l.f.State().WriteMetrics(&all)
		for _, s := range secrets {
			assert.NotContains(t, all.String(), s)
		}
	}
	for _, p := range l.peers {
		for _, r := range p.requests.all() {
			user, password, _ := r.BasicAuth()
			assert.Equal(t, [2]string{"puller", "canary-of-the-peers"}, [2]string{user, password})
			assert.Len(t, r.Header.Values("Authorization"), 1)
		}
	}
	for _, password := range []string{"", "wrong", "canary-of-the-peers"} {
		before := len(l.peers[0].requests.all())
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if password != "" {
			r.SetBasicAuth(ownAccount.Username, password)
		}
		l.f.Handler().ServeHTTP(w, r)
		assert.Equal(t, http.StatusUnauthorized, w.Code)
		assert.Contains(t, w.Header().Get("Www-Authenticate"), "Basic")
		assert.Len(t, l.peers[0].requests.all(), before)
	}
}

// Certificates and accounts are changed while the forwarder runs.
func TestFilesAreReadAgain(t *testing.T) {
	l := newLab(t, 1)
	img := l.image(t, 1000, 1)
	path := "/v2/" + repo + "/manifests/" + digestOf(t, img)
	status := func() int { return l.ask(t, http.MethodGet, path).status }
	require.Equal(t, 200, status())
	change := func(file, content string) (back func()) {
		old, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		return func() {
			require.NoError(t, os.WriteFile(file, old, 0o600))
			require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Second)))
		}
	}
	back := change(l.authFile(), `{"auths":{}}`)
	assert.Equal(t, 503, status())
	_, peers := refused(t, l.ask(t, http.MethodGet, path))
	assert.Contains(t, peers["master-0"], "check the account")
	back()
	assert.Equal(t, 200, status())
	for _, c := range []struct{ name, file, content string }{
		{"half a peers file", l.o.PeersFile, `{"apiVersion":"dayone.dev/v1",`},
		{"a peer of loopback", l.o.PeersFile, `{"apiVersion":"dayone.dev/v1","kind":"RegistryPeers",` +
			`"peers":[{"name":"m","address":"127.0.0.1:22627"}]}`},
		{"nobody's peers", l.o.PeersFile, `{"apiVersion":"dayone.dev/v1","kind":"RegistryPeers","peers":[]}`},
		{"no CA in it", l.caFile(), "nothing"},
		{"half an auth file", l.authFile(), `{"auths":`},
	} {
		t.Run(c.name, func(t *testing.T) {
			back := change(c.file, c.content)
			assert.Equal(t, 200, status(), "what was read before counts")
			back()
			assert.Equal(t, 200, status())
		})
	}
	require.NoError(t, os.Remove(l.o.PeersFile))
	assert.Equal(t, 503, status())
}
