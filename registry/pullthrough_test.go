package registry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/transfer"
)

// origin is distribution's own server with TLS and an account.
type origin struct {
	root, auth, ca string
	server         *httptest.Server
	// before may answer in its place, and then returns true.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	mu     sync.Mutex
	asked  []string // METHOD PATH of what had an account
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	dir := t.TempDir()
	o := &origin{root: filepath.Join(dir, "root"), auth: filepath.Join(dir, "auth.json"), ca: filepath.Join(dir, "ca.crt")}
	hash, err := bcrypt.GenerateFromPassword([]byte("upstream-secret"), bcrypt.MinCost)
	require.NoError(t, err)
	htpasswd := filepath.Join(dir, "htpasswd")
	require.NoError(t, os.WriteFile(htpasswd, []byte("node:"+string(hash)+"\n"), 0o600))
	h := newDistribution(t, o.root, func(c *configuration.Configuration) {
		c.Auth = configuration.Auth{"htpasswd": configuration.Parameters{"realm": "origin", "path": htpasswd}}
	})
	o.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); ok {
			o.mu.Lock()
			o.asked = append(o.asked, r.Method+" "+r.URL.Path)
			o.mu.Unlock()
		}
		if before := o.before.Load(); before != nil && (*before)(w, r) {
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(o.server.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.server.Certificate().Raw})
	require.NoError(t, os.WriteFile(o.ca, cert, 0o600))
	o.account(t, "upstream-secret")
	return o
}

// account writes the auth file by which the origin is asked.
func (o *origin) account(t *testing.T, password string) {
	t.Helper()
	raw, err := credentials.Encode(credentials.Account{Username: "node", Password: password}, o.host())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.auth, raw, 0o600))
}

func (o *origin) host() string { return strings.TrimPrefix(o.server.URL, "https://") }

// count is how often something was asked for.
func (o *origin) count(what string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range o.asked {
		if a == what {
			n++
		}
	}
	return n
}

func (o *origin) instead(f func(http.ResponseWriter, *http.Request) bool) { o.before.Store(&f) }

// through is a running pull-through registry with the accounts "u" and "n", of push and pull, and the password "p".
func through(t *testing.T, o *origin, root string, change ...func(*Options)) *Server {
	t.Helper()
	up, err := transfer.NewUpstream(transfer.Endpoint{Reference: o.host(), CAFile: o.ca, AuthFile: o.auth})
	require.NoError(t, err)
	options := Options{Root: root, Listen: "127.0.0.1:0", InsecureHTTP: true, Upstream: up, MinFreeBytes: 1,
		Users: []User{{Name: "u", Password: "p", Role: RolePush}, {Name: "n", Password: "p", Role: RolePull}}}
	for _, c := range change {
		c(&options)
	}
	s, err := New(options)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { stopServer(t, s) })
	return s
}

func stopServer(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, s.Shutdown(ctx))
}

// get asks a pull-through registry.
func get(t *testing.T, s *Server, method, path string, header ...string) (*http.Response, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
	require.NoError(t, err)
	req.SetBasicAuth("n", "p")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// image pushes an image to the origin and returns its manifest.
func (o *origin) image(t *testing.T, repo string, layers ...[]byte) []byte {
	t.Helper()
	return pushTo(t, plain(t, o.root).URL, repo, layers...)
}

// age makes files look as if they were written long ago.
func age(t *testing.T, root, name string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.Name() != name {
			return err
		}
		return os.Chtimes(path, then, then)
	}))
}

func TestPullThrough(t *testing.T) {
	o := newOrigin(t)
	layer := bytes.Repeat([]byte("layer "), 1<<20)
	manifest := o.image(t, "os/app", layer, []byte("second"))
	d := digest.FromBytes(manifest)
	root := t.TempDir()
	s := through(t, o, root)
	skopeo := func(ref string) string {
		dir := t.TempDir()
		out, err := exec.Command("skopeo", "copy", "--preserve-digests", "--src-creds", "n:p", "--src-tls-verify=false",
			"docker://"+s.Addr()+"/os/app"+ref, "oci:"+dir+":x").CombinedOutput()
		require.NoError(t, err, "%s", out)
		index, err := os.ReadFile(filepath.Join(dir, "index.json"))
		require.NoError(t, err)
		return string(index)
	}
	assert.Contains(t, skopeo(":v1"), d.Encoded())
	blob := "/v2/os/app/blobs/" + digest.FromBytes(layer).String()
	assert.Equal(t, 1, o.count("GET "+blob))

	t.Run("the status says when it answered", func(t *testing.T) {
		status, err := ReadStatus(t.Context(), root)
		require.NoError(t, err)
		require.NotNil(t, status.Upstream)
		assert.Equal(t, o.host(), status.Upstream.Name)
		assert.WithinDuration(t, time.Now(), status.Upstream.LastAnswer, time.Minute)
		assert.Empty(t, status.Upstream.Fault)
		assert.Zero(t, status.Upstream.Fetches)
	})
	t.Run("what is here is not asked for", func(t *testing.T) {
		o.instead(func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		})
		assert.Contains(t, skopeo(":v1"), d.Encoded())
		assert.Contains(t, skopeo("@"+string(d)), d.Encoded())
	})
	t.Run("an old answer says so when the upstream is away", func(t *testing.T) {
		age(t, filepath.Join(root, storage.Subdirectory, "repositories/os/app/_manifests/tags"), "link", time.Hour)
		resp, body, err := get(t, s, http.MethodGet, "/v2/os/app/manifests/v1")
		require.NoError(t, err)
		assert.Equal(t, manifest, body)
		assert.GreaterOrEqual(t, len(resp.Header.Get("Age")), len("3600"))
		assert.Regexp(t, `^dayone; hit; ttl=-35\d\d$`, resp.Header.Get("Cache-Status"))
		resp, _, _ = get(t, s, http.MethodGet, "/v2/os/app/manifests/v1")
		assert.NotEmpty(t, resp.Header.Get("Cache-Status"), "nor is it asked again at once")
		assert.Equal(t, 1, o.count("HEAD /v2/os/app/manifests/v1")-1)
		resp, body, _ = get(t, s, http.MethodGet, "/v2/os/app/tags/list")
		assert.JSONEq(t, `{"name":"os/app","tags":["v1"]}`, string(body))
		assert.Contains(t, resp.Header.Get("Cache-Status"), "without the upstream")
		status, err := ReadStatus(t.Context(), root)
		require.NoError(t, err)
		assert.Contains(t, status.Upstream.Fault, "500")
		assert.True(t, status.Upstream.FaultAt.After(status.Upstream.LastAnswer))
	})
	t.Run("what is not here fails then, not as if it were nowhere", func(t *testing.T) {
		for _, path := range []string{"os/app/manifests/v2", "os/app/manifests/" + string(digest.FromString("x")),
			"os/app/blobs/" + string(digest.FromString("x")), "os/none/tags/list"} {
			resp, body, _ := get(t, s, http.MethodGet, "/v2/"+path)
			assert.Equal(t, http.StatusBadGateway, resp.StatusCode, path)
			assert.NotContains(t, string(body), "upstream-secret")
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		stopServer(t, s)
		require.NoError(t, s.Start())
		assert.Contains(t, skopeo("@"+string(d)), d.Encoded())
		found, err := storage.Verify(t.Context(), s.service.store, storage.VerifyOptions{})
		require.NoError(t, err)
		assert.Empty(t, found.Missing)
	})
	t.Run("a blob that rots comes again", func(t *testing.T) {
		o.before.Store(nil)
		file := filepath.Join(root, storage.Subdirectory, "blobs/sha256", digest.FromBytes(layer).Encoded()[:2],
			digest.FromBytes(layer).Encoded(), "data")
		require.NoError(t, os.WriteFile(file, []byte("rot"), 0o600))
		_, body, err := get(t, s, http.MethodGet, blob)
		require.NoError(t, err)
		assert.Equal(t, digest.FromBytes(layer), digest.FromBytes(body))
		assert.Equal(t, 2, o.count("GET "+blob))
	})
	t.Run("as a mirror of the upstream's name", func(t *testing.T) {
		dir := t.TempDir()
		conf, auth := filepath.Join(dir, "registries.conf"), filepath.Join(dir, "auth.json")
		require.NoError(t, os.WriteFile(conf, []byte("[[registry]]\nprefix = \"registry.example.com/os\"\n"+
			"location = \"127.0.0.1:1/os\"\n[[registry.mirror]]\nlocation = \""+s.Addr()+"/os\"\ninsecure = true\n"), 0o600))
		require.NoError(t, User{Name: "n", Password: "p"}.WriteAuthFile(auth, s.Addr()))
		out, err := exec.Command("skopeo", "--registries-conf", conf, "inspect", "--no-tags", "--authfile", auth,
			"--format", "{{.Digest}}", "docker://registry.example.com/os/app@"+string(d)).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Equal(t, string(d)+"\n", string(out))
	})
	t.Run("nobody pushes", func(t *testing.T) {
		req, err := http.NewRequest(http.MethodPost, "http://"+s.Addr()+"/v2/os/app/blobs/uploads/", nil)
		require.NoError(t, err)
		req.SetBasicAuth("u", "p")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, _ := io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
		assert.Contains(t, string(body), "push to the upstream")
	})
}

func TestPullThroughTags(t *testing.T) {
	o := newOrigin(t)
	first := o.image(t, "a/b", []byte("first"))
	root := t.TempDir()
	s := through(t, o, root)
	tag := func() (int, []byte) {
		age(t, root, "link", 2*tagFresh)
		resp, body, err := get(t, s, http.MethodGet, "/v2/a/b/manifests/v1")
		require.NoError(t, err)
		return resp.StatusCode, body
	}
	_, body := tag()
	assert.Equal(t, first, body)
	second := o.image(t, "a/b", []byte("second"))
	resp, body, err := get(t, s, http.MethodHead, "/v2/a/b/manifests/v1")
	require.NoError(t, err)
	assert.Equal(t, digest.FromBytes(first).String(), resp.Header.Get("Docker-Content-Digest"), "it is fresh")
	assert.Empty(t, body)
	_, body = tag()
	assert.Equal(t, second, body)
	_, body = tag()
	assert.Equal(t, second, body)
	assert.Equal(t, 1, o.count("GET /v2/a/b/manifests/"+digest.FromBytes(second).String()), "only its digest is asked for")
	o.image(t, "a/b", []byte("first"))
	_, body = tag()
	assert.Equal(t, first, body, "a manifest that is here gets the tag")

	_, body, err = get(t, s, http.MethodGet, "/v2/a/b/tags/list?n=1")
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"a/b","tags":["v1"]}`, string(body))
	for _, path := range []string{"a/b/manifests/none", "a/b/manifests/" + string(digest.FromString("none")),
		"a/b/blobs/" + string(digest.FromString("none")), "none/manifests/v1", "none/tags/list",
		"a/b/referrers/" + string(digest.FromBytes(first))} { // distribution has no referrers: clients take the tag
		resp, _, err := get(t, s, http.MethodGet, "/v2/"+path)
		require.NoError(t, err)
		assert.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
	code, _ := do(t, http.MethodDelete, plain(t, o.root).URL+"/v2/a/b/manifests/v1", nil, "")
	require.Equal(t, http.StatusAccepted, code)
	code, _ = tag()
	assert.Equal(t, http.StatusNotFound, code)
	resp, _, err = get(t, s, http.MethodGet, "/v2/a/b/manifests/"+digest.FromBytes(first).String())
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestPullThroughOneFetch lets 50 clients read the first half of a layer before the upstream sends the second.
func TestPullThroughOneFetch(t *testing.T) {
	o := newOrigin(t)
	layer := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	o.image(t, "a/b", layer)
	s := through(t, o, t.TempDir())
	path := "/v2/a/b/blobs/" + digest.FromBytes(layer).String()
	const clients = 50
	var began sync.WaitGroup
	began.Add(clients)
	o.instead(func(w http.ResponseWriter, r *http.Request) bool {
		if _, _, ok := r.BasicAuth(); !ok || r.URL.Path != path {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
		_, _ = w.Write(layer[:len(layer)/2])
		assert.NoError(t, http.NewResponseController(w).Flush())
		began.Wait()
		_, _ = w.Write(layer[len(layer)/2:])
		return true
	})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+path, nil)
			assert.NoError(t, err)
			req.SetBasicAuth("n", "p")
			resp, err := http.DefaultClient.Do(req)
			if !assert.NoError(t, err) {
				began.Done()
				return
			}
			defer func() { _ = resp.Body.Close() }()
			got := make([]byte, len(layer)/4)
			_, err = io.ReadFull(resp.Body, got)
			began.Done()
			assert.NoError(t, err)
			rest, err := io.ReadAll(resp.Body)
			assert.NoError(t, err)
			assert.Equal(t, digest.FromBytes(layer), digest.FromBytes(append(got, rest...)))
		})
	}
	all.Wait()
	assert.Equal(t, 1, o.count("GET "+path))
	resp, body, err := get(t, s, http.MethodGet, path, "Range", "bytes=3-6")
	require.NoError(t, err)
	assert.Equal(t, http.StatusPartialContent, resp.StatusCode)
	assert.Equal(t, "3456", string(body))
}

func TestPullThroughLies(t *testing.T) {
	o := newOrigin(t)
	layer := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	manifest := o.image(t, "a/b", layer)
	blobPath := "/v2/a/b/blobs/" + digest.FromBytes(layer).String()
	manifestPath := "/v2/a/b/manifests/" + digest.FromBytes(manifest).String()
	length := func(w http.ResponseWriter, n int) { w.Header().Set("Content-Length", fmt.Sprint(n)) }
	other := bytes.ToUpper(layer)
	for _, tc := range []struct {
		name, path string
		lie        func(w http.ResponseWriter)
	}{
		{"other bytes", blobPath, func(w http.ResponseWriter) { length(w, len(other)); _, _ = w.Write(other) }},
		{"too few", blobPath, func(w http.ResponseWriter) { length(w, len(layer)); _, _ = w.Write(layer[:1<<19]) }},
		{"a smaller blob", blobPath, func(w http.ResponseWriter) { length(w, 1<<19); _, _ = w.Write(layer[:1<<19]) }},
		{"a larger blob", blobPath, func(w http.ResponseWriter) {
			length(w, len(layer)+1)
			_, _ = w.Write(append(bytes.Clone(layer), 'x'))
		}},
		{"none", blobPath, func(w http.ResponseWriter) { length(w, 0) }},
		{"without an end", blobPath, func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(layer); err != nil {
					return
				}
			}
		}},
		{"a size that no disk has", blobPath, func(w http.ResponseWriter) { length(w, 1<<60); _, _ = w.Write(layer) }},
		{"another manifest", manifestPath, func(w http.ResponseWriter) {
			_, _ = w.Write(bytes.Replace(manifest, []byte("layer"), []byte("liar!"), 1))
		}},
		{"a manifest without an end", manifestPath, func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(manifest); err != nil {
					return
				}
			}
		}},
		{"no digest of a tag", "/v2/a/b/manifests/v1", func(w http.ResponseWriter) { _, _ = w.Write(manifest) }},
		{"its account is refused", blobPath, func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o.instead(func(w http.ResponseWriter, r *http.Request) bool {
				if _, _, ok := r.BasicAuth(); !ok || r.URL.Path != tc.path {
					return false
				}
				tc.lie(w)
				return true
			})
			root := t.TempDir()
			s := through(t, o, root, func(o *Options) { o.MaxManifestBytes = 64 << 10 })
			for _, partial := range []string{"", "bytes=0-9"} {
				resp, _, err := get(t, s, http.MethodGet, tc.path, "Range", partial)
				if partial != "" || err == nil {
					assert.GreaterOrEqual(t, resp.StatusCode, http.StatusInternalServerError)
				}
			}
			assert.Zero(t, s.service.store.Used())
			assert.Zero(t, s.service.store.Uploads())
			o.before.Store(nil)
			resp, _, err := get(t, s, http.MethodGet, tc.path)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, resp.StatusCode, "it comes when the upstream is well again")
		})
	}
}

// TestPullThroughAccount corrects a wrong account in the auth file while the server runs.
func TestPullThroughAccount(t *testing.T) {
	o := newOrigin(t)
	manifest := o.image(t, "a/b", []byte("layer"))
	o.account(t, "wrong")
	s := through(t, o, t.TempDir())
	for range 2 {
		resp, _, err := get(t, s, http.MethodGet, "/v2/a/b/manifests/"+digest.FromBytes(manifest).String())
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
		assert.Empty(t, resp.Header.Get("Www-Authenticate"), "the client's own account is right")
	}
	o.account(t, "upstream-secret")
	_, body, err := get(t, s, http.MethodGet, "/v2/a/b/manifests/v1")
	require.NoError(t, err)
	assert.Equal(t, manifest, body)
}

// TestPullThroughRoom fills the budget: what was not asked for longest goes, what is too large is refused.
func TestPullThroughRoom(t *testing.T) {
	o := newOrigin(t)
	layers := map[string][]byte{}
	for _, name := range []string{"a", "b", "c"} {
		layers[name] = bytes.Repeat([]byte(name), 400<<10)
		o.image(t, name, layers[name])
	}
	o.image(t, "large", bytes.Repeat([]byte("x"), 2<<20))
	root := t.TempDir()
	s := through(t, o, root, func(o *Options) { o.MaxBytes = 1 << 20 })
	pull := func(name string) int {
		var m struct{ Layers []struct{ Digest string } }
		_, body, err := get(t, s, http.MethodGet, "/v2/"+name+"/manifests/v1")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, &m))
		resp, body, err := get(t, s, http.MethodGet, "/v2/"+name+"/blobs/"+m.Layers[0].Digest)
		require.NoError(t, err)
		if resp.StatusCode == http.StatusOK {
			assert.Equal(t, layers[name], body)
		}
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusOK, pull("a"))
	assert.Equal(t, http.StatusOK, pull("b"))
	assert.Equal(t, http.StatusInsufficientStorage, pull("c"), "the others are in use")
	age(t, root, "data", time.Hour)
	age(t, filepath.Join(root, storage.Subdirectory, "repositories/a"), "cached", time.Hour)
	assert.Equal(t, http.StatusInsufficientStorage, pull("large"))
	has := func(name string) bool {
		_, err := s.service.store.Repository(name).StatBlob(digest.FromBytes(layers[name]))
		return err == nil
	}
	assert.True(t, has("a"), "what never fits drives nothing out")
	assert.Equal(t, http.StatusOK, pull("c"))
	assert.False(t, has("a"))
	assert.True(t, has("b"))
	assert.LessOrEqual(t, s.service.store.Used(), int64(1<<20))

	age(t, root, "cached", time.Hour)
	require.NoError(t, s.service.dropCached(t.Context(), time.Minute))
	listed, err := storage.ListCached(t.Context(), s.service.store)
	require.NoError(t, err)
	assert.Empty(t, listed, "nobody asked for them during the time to live")
}

// TestPullThroughKilled kills a registry that has half of a layer: the next one begins it anew and keeps nothing half.
func TestPullThroughKilled(t *testing.T) {
	o := newOrigin(t)
	layer := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	o.image(t, "a/b", layer)
	path, root := "/v2/a/b/blobs/"+digest.FromBytes(layer).String(), t.TempDir()
	run := func() (addr string, kill func()) {
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "DAYONE_TEST_REGISTRY_CHILD="+strings.Join([]string{root, "p", o.host(), o.ca, o.auth},
			"|"))
		_, err = cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		t.Cleanup(kill)
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line), kill
	}
	ask := func(addr string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		require.NoError(t, err)
		req.SetBasicAuth("push", "p")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp
	}
	released := make(chan struct{})
	o.instead(func(w http.ResponseWriter, r *http.Request) bool {
		if _, _, ok := r.BasicAuth(); !ok || r.URL.Path != path {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
		_, _ = w.Write(layer[:len(layer)/2])
		assert.NoError(t, http.NewResponseController(w).Flush())
		<-released
		return true
	})
	addr, kill := run()
	resp := ask(addr)
	_, err := io.ReadFull(resp.Body, make([]byte, len(layer)/4))
	require.NoError(t, err)
	kill()
	require.NoError(t, resp.Body.Close())
	close(released)
	o.before.Store(nil)

	addr, _ = run()
	uploads, err := filepath.Glob(filepath.Join(root, storage.Subdirectory, "repositories/a/b/_uploads/*"))
	require.NoError(t, err)
	assert.Empty(t, uploads)
	resp = ask(addr)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, digest.FromBytes(layer), digest.FromBytes(got))
}

// slowUpstream sends a byte and then nothing.
type slowUpstream struct{}

func (slowUpstream) Name() string { return "slow.example.com" }

func (slowUpstream) Do(ctx context.Context, _, _, _ string, _ http.Header) (*http.Response, error) {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	go func() { _, _ = w.Write([]byte("x")) }()
	return &http.Response{StatusCode: http.StatusOK, ContentLength: 1 << 20, Body: r}, nil
}

func TestPullThroughSlowUpstream(t *testing.T) {
	overPipes(t, func(o *Options) { o.Upstream = slowUpstream{} },
		func(t *testing.T, network *pipes, auth string) {
			c := network.dial()
			began := time.Now()
			_, err := fmt.Fprintf(c, "GET /v2/a/b/blobs/%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", digest.FromString("x"), auth)
			require.NoError(t, err)
			got, err := io.ReadAll(c)
			require.NoError(t, err, "the server closes")
			assert.NotContains(t, string(got), "\r\n\r\nx")
			assert.LessOrEqual(t, time.Since(began), 2*stallTimeout)
		})
}
