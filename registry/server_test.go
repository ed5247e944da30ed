package registry_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

// gcr returns the options of a go-containerregistry client with an account of r.
func gcr(t testing.TB, r *registrytest.Registry, u registry.User) []remote.Option {
	t.Helper()
	return []remote.Option{remote.WithTransport(r.Transport(t)),
		remote.WithAuth(&authn.Basic{Username: u.Name, Password: u.Password})}
}

func pushRandom(t testing.TB, r *registrytest.Registry, repo string, layers int64) (name.Reference, v1.Image) {
	t.Helper()
	img, err := random.Image(4096, layers)
	require.NoError(t, err)
	ref, err := name.ParseReference(r.Addr + "/" + repo)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img, gcr(t, r, r.Push)...))
	return ref, img
}

func TestPushPull(t *testing.T) {
	r := registrytest.Start(t)
	ref, img := pushRandom(t, r, "ocp/master-os:v1", 3)
	want, err := img.Digest()
	require.NoError(t, err)
	got, err := remote.Image(ref, gcr(t, r, r.Pull)...)
	require.NoError(t, err)
	d, err := got.Digest()
	require.NoError(t, err)
	assert.Equal(t, want, d)
	layers, err := got.Layers()
	require.NoError(t, err)
	for _, l := range layers {
		rc, err := l.Compressed()
		require.NoError(t, err)
		var b bytes.Buffer
		_, err = b.ReadFrom(rc)
		require.NoError(t, err)
		require.NoError(t, rc.Close())
	}
}

func TestRoles(t *testing.T) {
	r := registrytest.Start(t)
	ref, img := pushRandom(t, r, "a/b:v1", 1)
	wrong := registry.User{Name: r.Push.Name, Password: "wrong"}
	nobody := registry.User{Name: "nobody", Password: r.Push.Password}
	for _, tc := range []struct {
		name       string
		user       registry.User
		pull, push int
	}{
		{"the push account may do both", r.Push, 200, 201},
		{"the pull account may only pull", r.Pull, 200, 403},
		{"a wrong password may do nothing", wrong, 401, 401},
		{"an unknown user may do nothing", nobody, 401, 401},
		{"anonymous may do nothing", registry.User{}, 401, 401},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, err := img.RawManifest()
			require.NoError(t, err)
			mt, err := img.MediaType()
			require.NoError(t, err)
			url := r.URL() + "/v2/a/b/manifests/" + ref.Identifier()
			for method, want := range map[string]int{http.MethodGet: tc.pull, http.MethodPut: tc.push} {
				req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(raw))
				require.NoError(t, err)
				req.Header.Set("Content-Type", string(mt))
				req.Header.Set("Accept", string(mt))
				if tc.user.Name != "" {
					req.SetBasicAuth(tc.user.Name, tc.user.Password)
				}
				resp, err := r.Transport(t).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, want, resp.StatusCode, method)
				if want == 401 {
					assert.Contains(t, resp.Header.Get("Www-Authenticate"), "Basic realm=")
				}
			}
		})
	}
}

func TestServersAndRestart(t *testing.T) {
	one, two := registrytest.Start(t), registrytest.Start(t)
	ref, img := pushRandom(t, one, "x/y:v1", 2)
	want, err := img.Digest()
	require.NoError(t, err)
	other, err := name.ParseReference(two.Addr + "/x/y:v1")
	require.NoError(t, err)
	_, err = remote.Head(other, gcr(t, two, two.Pull)...)
	require.Error(t, err, "the second server has a root of its own")

	for range 3 {
		one.Restart(t)
	}
	desc, err := remote.Head(ref, gcr(t, one, one.Pull)...)
	require.NoError(t, err)
	assert.Equal(t, want, desc.Digest)
}

func TestRootLock(t *testing.T) {
	r := registrytest.Start(t)
	o := r.Options
	o.Listen = "127.0.0.1:0"
	s, err := registry.New(o)
	require.NoError(t, err)
	err = s.Start()
	require.Error(t, err)
	assert.Contains(t, err.Error(), "another registry")
}

func TestStartErrors(t *testing.T) {
	r := registrytest.Start(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		name   string
		change func(*registry.Options)
	}{
		{"the port is taken", func(o *registry.Options) { o.Listen = r.Addr; o.Root = t.TempDir() }},
		{"the root is a file", func(o *registry.Options) { o.Root = file }},
		{"the key is missing", func(o *registry.Options) { o.Root = t.TempDir(); o.CertFile, o.KeyFile = file, file }},
		{"the host has no such IP", func(o *registry.Options) { o.Root = t.TempDir(); o.Listen = "192.0.2.1:0" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := r.Options
			o.Listen = "127.0.0.1:0"
			tc.change(&o)
			s, err := registry.New(o)
			require.NoError(t, err)
			require.Error(t, s.Start())
			require.NoError(t, s.Shutdown(t.Context()), "a server that did not start can be shut down")
		})
	}
}

func TestValidateOptions(t *testing.T) {
	user := registry.User{Name: "u", Password: "p", Role: registry.RolePull}
	good := registry.Options{Root: "/r", Listen: "127.0.0.1:0", Users: []registry.User{user}}
	for _, tc := range []struct {
		name   string
		change func(*registry.Options)
	}{
		{"Root", func(o *registry.Options) { o.Root = "" }},
		{"Listen", func(o *registry.Options) { o.Listen = "5000" }},
		{"InsecureHTTP", func(o *registry.Options) { o.InsecureHTTP = true; o.Listen = "0.0.0.0:5000" }},
		{"CertFile", func(o *registry.Options) { o.CertFile = "x" }},
		{"Users", func(o *registry.Options) { o.Users = nil }},
		{"twice", func(o *registry.Options) { o.Users = []registry.User{user, user} }},
		{"role", func(o *registry.Options) { o.Users = []registry.User{{Name: "u", Password: "p"}} }},
		{"password", func(o *registry.Options) { o.Users = []registry.User{{Name: "u", Role: registry.RolePull}} }},
		{"not bcrypt", func(o *registry.Options) {
			o.Users = []registry.User{{Name: "u", PasswordHash: "x", Role: registry.RolePull}}
		}},
		{"must be non-empty", func(o *registry.Options) {
			o.Users = []registry.User{{Name: "a:b", Password: "x", Role: registry.RolePull}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := registry.New(o)
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.name)
		})
	}
}

func TestDistributionLog(t *testing.T) {
	var ours, standard bytes.Buffer
	l := logrus.New()
	l.SetOutput(&ours)
	l.SetLevel(logrus.DebugLevel)
	std := logrus.StandardLogger()
	old := std.Out
	std.SetOutput(&standard)
	defer std.SetOutput(old)

	r := registrytest.Start(t, func(o *registry.Options) { o.Log = logrus.NewEntry(l) })
	wrong := "/v2/a/b/blobs/uploads/?digest=" + digest.FromString("other").String()
	resp := request(t, r, r.Push, http.MethodPost, wrong, strings.NewReader("bytes"))
	assert.Equal(t, http.StatusBadRequest, resp.status)
	r.Stop(t)
	assert.Empty(t, standard.String(), "nothing reaches the process's standard logger")
	assert.Contains(t, ours.String(), "source=distribution")
	assert.NotContains(t, ours.String(), r.Push.Password)
}

func TestShutdownTwice(t *testing.T) {
	r := registrytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.Server.Shutdown(ctx))
	require.NoError(t, r.Server.Shutdown(ctx))
	require.NoError(t, r.Server.Start())
}
