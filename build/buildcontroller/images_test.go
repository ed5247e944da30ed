package buildcontroller

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/registry/registrytest"
)

// pushed puts an image into a real registry.
func pushed(t *testing.T, r *registrytest.Registry) string {
	t.Helper()
	image, err := random.Image(1024, 1)
	require.NoError(t, err)
	tag, err := name.NewTag(r.Addr + "/os/custom:first")
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, image, r.Pusher(t)...))
	digest, err := image.Digest()
	require.NoError(t, err)
	return tag.Repository.Name() + "@" + digest.String()
}

func accessTo(t *testing.T, r *registrytest.Registry, authFile string) Access {
	t.Helper()
	auth, err := os.ReadFile(authFile)
	require.NoError(t, err)
	ca, err := os.ReadFile(r.CAFile)
	require.NoError(t, err)
	return Access{Auth: auth, CA: ca}
}

func TestRegistriesByDigest(t *testing.T) {
	r := registrytest.Start(t)
	ctx, images := context.Background(), Registries{}
	reference, access := pushed(t, r), accessTo(t, r, r.PushAuthFile)

	exists, err := images.Exists(ctx, reference, access)
	require.NoError(t, err)
	assert.True(t, exists)
	there, err := images.Tag(ctx, reference, "second", access)
	require.NoError(t, err)
	assert.True(t, there)
	digest, err := remote.Head(mustTag(t, r.Addr+"/os/custom:second"), remote.WithTransport(r.Transport(t)),
		remote.WithAuth(&authn.Basic{Username: r.Pull.Name, Password: r.Pull.Password}))
	require.NoError(t, err)
	assert.Equal(t, digestOf(reference), digest.Digest.String())

	_, err = images.Exists(ctx, reference, Access{CA: access.CA})
	require.Error(t, err, "a registry that wants to know who asks has not said that the image is gone")
	require.Error(t, images.Delete(ctx, reference, accessTo(t, r, r.PullAuthFile)), "who may only pull deletes nothing")
	require.NoError(t, images.Delete(ctx, reference, access))
	exists, err = images.Exists(ctx, reference, access)
	require.NoError(t, err)
	assert.False(t, exists)
	there, err = images.Tag(ctx, reference, "third", access)
	require.NoError(t, err)
	assert.False(t, there)
	require.NoError(t, images.Delete(ctx, reference, access), "what is not there is deleted")
	r.Stop(t)
	_, err = images.Exists(ctx, reference, access)
	require.Error(t, err, "a registry that cannot be reached has said nothing")
}

func mustTag(t *testing.T, s string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(s)
	require.NoError(t, err)
	return tag
}

// TestRegistriesGone asks something that only answers with a status, as proxies and broken registries do.
func TestRegistriesGone(t *testing.T) {
	status := 0
	body := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	reference := strings.TrimPrefix(server.URL, "https://") + "/os/custom@sha256:" + strings.Repeat("1", 64)
	for _, c := range []struct {
		status int
		body   string
		gone   bool
	}{
		{http.StatusUnauthorized, `{"errors":[{"code":"UNAUTHORIZED"}]}`, false},
		{http.StatusForbidden, `{"errors":[{"code":"DENIED"}]}`, false},
		{http.StatusNotFound, "<html>no such route</html>", false},
		{http.StatusInternalServerError, "", false},
		{http.StatusServiceUnavailable, "", false},
		{http.StatusNotFound, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, true},
		{http.StatusNotFound, `{"errors":[{"code":"NAME_UNKNOWN"}]}`, true},
	} {
		status, body = c.status, c.body
		exists, err := Registries{}.Exists(context.Background(), reference, Access{CA: ca})
		assert.False(t, exists)
		assert.Equal(t, c.gone, err == nil, "%d %s: %v", c.status, c.body, err)
	}
}

func TestRegistriesHideCredentials(t *testing.T) {
	_, err := Registries{}.Exists(context.Background(), registry+"/os/custom@sha256:"+strings.Repeat("1", 64),
		Access{Auth: []byte(`{"auths":{"x":{"auth":"canary"`)})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
}

func TestRegistriesByAddress(t *testing.T) {
	r := registrytest.Start(t)
	access := accessTo(t, r, r.PushAuthFile)
	repository := r.Addr + "/os/custom"
	push := func(address, label string) string {
		image, err := random.Image(1024, 2)
		require.NoError(t, err)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		config.Config.Labels = map[string]string{build.LabelAddress: label}
		image, err = mutate.ConfigFile(image, config)
		require.NoError(t, err)
		require.NoError(t, remote.Write(mustTag(t, repository+":"+build.Tag(address)), image,
			r.Pusher(t)...))
		digest, err := image.Digest()
		require.NoError(t, err)
		return repository + "@" + digest.String()
	}
	one, other, absent := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	image := push(one, one)
	push(other, one)
	for _, k := range []struct{ name, address, want string }{
		{"its own", one, image}, {"an image that says another address", other, ""}, {"none", absent, ""},
	} {
		found, err := Registries{}.Find(t.Context(), repository, k.address, access)
		require.NoError(t, err, k.name)
		assert.Equal(t, k.want, found, k.name)
	}
	_, err := Registries{}.Find(t.Context(), repository, one, Access{CA: access.CA})
	assert.Error(t, err, "a registry that refuses has said nothing")
}
