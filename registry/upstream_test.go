package registry

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/quiet"
	"dayone.dev/dayone/registry/route"
	"dayone.dev/dayone/registry/storage"
)

// plain serves a root by distribution's own application.
func plain(t testing.TB, root string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(newDistribution(t, root))
	t.Cleanup(srv.Close)
	return srv
}

// own is our service on a root with one account that may push: "u" with the password "p".
func own(t testing.TB, root string) *httptest.Server {
	t.Helper()
	s, err := New(Options{Root: root, Listen: "127.0.0.1:0", InsecureHTTP: true,
		Users: []User{{Name: "u", Password: "p", Role: RolePush}}})
	require.NoError(t, err)
	require.NoError(t, s.openStorage())
	srv := httptest.NewServer(s.service)
	t.Cleanup(func() { srv.Close(); _ = s.release() })
	return srv
}

func do(t testing.TB, method, url string, body []byte, contentType string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth("u", "p")
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, b
}

// pushTo pushes an image with n layers the way every client does and returns its manifest.
func pushTo(t testing.TB, base, repo string, layers ...[]byte) []byte {
	t.Helper()
	descriptor := func(data []byte) string {
		d := digest.FromBytes(data)
		req, err := http.NewRequest(http.MethodPost, base+"/v2/"+repo+"/blobs/uploads/", nil)
		require.NoError(t, err)
		req.SetBasicAuth("u", "p")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusAccepted, resp.StatusCode)
		loc, err := resp.Location()
		require.NoError(t, err)
		q := loc.Query()
		q.Set("digest", d.String())
		loc.RawQuery = q.Encode()
		code, b := do(t, http.MethodPut, loc.String(), data, "application/octet-stream")
		require.Equal(t, http.StatusCreated, code, "%s", b)
		return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"%s","size":%d}`, d, len(data))
	}
	cfg := strings.Replace(descriptor([]byte("{}")), "layer.v1.tar", "config.v1+json", 1)
	var ls []string
	for _, l := range layers {
		ls = append(ls, descriptor(l))
	}
	m := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":` + cfg + `,"layers":[` +
		strings.Join(ls, ",") + `]}`
	code, b := do(t, http.MethodPut, base+"/v2/"+repo+"/manifests/v1", []byte(m),
		"application/vnd.oci.image.manifest.v1+json")
	require.Equal(t, http.StatusCreated, code, "%s", b)
	return []byte(m)
}

func TestStoreSharedWithDistribution(t *testing.T) {
	layer := []byte("a layer")
	for _, tc := range []struct {
		name        string
		write, read func(testing.TB, string) *httptest.Server
	}{
		{"distribution reads ours", own, plain},
		{"we read distribution's", plain, own},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			m := pushTo(t, tc.write(t, root).URL, "a/b", layer)
			srv := tc.read(t, root)
			for _, ref := range []string{"v1", digest.FromBytes(m).String()} {
				code, got := do(t, http.MethodGet, srv.URL+"/v2/a/b/manifests/"+ref, nil, "")
				require.Equal(t, http.StatusOK, code)
				assert.Equal(t, m, got)
			}
			code, got := do(t, http.MethodGet, srv.URL+"/v2/a/b/blobs/"+digest.FromBytes(layer).String(), nil, "")
			require.Equal(t, http.StatusOK, code)
			assert.Equal(t, layer, got)
			code, got = do(t, http.MethodGet, srv.URL+"/v2/a/b/tags/list", nil, "")
			require.Equal(t, http.StatusOK, code)
			assert.JSONEq(t, `{"name":"a/b","tags":["v1"]}`, string(got))
		})
	}
}

func TestHandlerPanic(t *testing.T) {
	failures := prometheus.NewCounter(prometheus.CounterOpts{Name: "failures"})
	s := &service{log: quiet.Log(), accounts: nil, metrics: &metrics{failures: failures}}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/", nil))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(failures))
	got, err := reg.Gather()
	require.NoError(t, err)
	assert.InDelta(t, 1, got[0].Metric[0].Counter.GetValue(), 0)
}

func FuzzRoute(f *testing.F) {
	for _, p := range []string{"/v2/", "/v2/a/b/manifests/v1", "/v2/a/blobs/uploads/x", "/v2/a/blobs/sha256:00",
		"/v2/../x/tags/list", "/v2//tags/list", "/v2/a/referrers/b"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		rt := route.Parse(path)
		if rt.Name != "" && route.ValidName(rt.Name) {
			assert.NotContains(t, "/"+rt.Name+"/", "/../")
			assert.NotContains(t, "/"+rt.Name+"/", "/./")
			assert.NotContains(t, rt.Name, "\x00")
		}
		if route.ValidTag(rt.Ref) {
			assert.NotContains(t, rt.Ref, "/")
			assert.NotEqual(t, "..", rt.Ref)
		}
		if d, err := storage.ParseDigest(rt.Ref); err == nil {
			assert.NotContains(t, d.Encoded(), "/")
		}
	})
}
