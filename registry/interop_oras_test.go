package registry_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

func orasRepository(t *testing.T, r *registrytest.Registry, name string, u registry.User) *remote.Repository {
	t.Helper()
	repo, err := remote.NewRepository(r.Addr + "/" + name)
	require.NoError(t, err)
	repo.Client = &auth.Client{
		Client:     &http.Client{Transport: r.Transport(t)},
		Credential: auth.StaticCredential(r.Addr, auth.Credential{Username: u.Name, Password: u.Password}),
	}
	return repo
}

func TestOras(t *testing.T) {
	r := registrytest.Start(t)
	ctx := t.Context()
	store := memory.New()
	data := bytes.Repeat([]byte("oras"), 1000)
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(data),
		Size: int64(len(data))}
	require.NoError(t, store.Push(ctx, layer, bytes.NewReader(data)))
	m, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, "example/app",
		oras.PackManifestOptions{Layers: []ocispec.Descriptor{layer}})
	require.NoError(t, err)
	require.NoError(t, store.Tag(ctx, m, "v1"))
	repo := orasRepository(t, r, "interop/oras", r.Push)
	_, err = oras.Copy(ctx, store, "v1", repo, "v1", oras.DefaultCopyOptions)
	require.NoError(t, err)

	signature, err := oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, "example/signature",
		oras.PackManifestOptions{Subject: &m})
	require.NoError(t, err)
	var found []digest.Digest
	require.NoError(t, repo.Referrers(ctx, m, "example/signature", func(list []ocispec.Descriptor) error {
		for _, d := range list {
			found = append(found, d.Digest)
		}
		return nil
	}))
	assert.Equal(t, []digest.Digest{signature.Digest}, found)
	_, err = repo.Resolve(ctx, "sha256-"+m.Digest.Encoded())
	require.Error(t, err, "the client saw that it need not keep a fallback tag")

	back := memory.New()
	got, err := oras.Copy(ctx, orasRepository(t, r, "interop/oras", r.Pull), "v1", back, "", oras.DefaultCopyOptions)
	require.NoError(t, err)
	assert.Equal(t, m.Digest, got.Digest)
	rc, err := back.Fetch(ctx, layer)
	require.NoError(t, err)
	b, err := io.ReadAll(rc)
	require.NoError(t, err)
	assert.Equal(t, data, b)

	other := orasRepository(t, r, "interop/mounted", r.Push)
	require.NoError(t, other.Mount(ctx, layer, "interop/oras", nil))
	require.NoError(t, repo.Tags(ctx, "", func(tags []string) error {
		assert.Equal(t, []string{"v1"}, tags)
		return nil
	}))
	require.NoError(t, repo.Delete(ctx, signature))
	_, err = oras.Copy(ctx, store, "v1", orasRepository(t, r, "interop/denied", r.Pull), "v1", oras.DefaultCopyOptions)
	require.Error(t, err, "the pull account may not push")
}
