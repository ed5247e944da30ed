package registry_test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/regclient/regclient"
	"github.com/regclient/regclient/config"
	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
)

func regClient(t *testing.T, r *registrytest.Registry, u registry.User) *regclient.RegClient {
	t.Helper()
	ca, err := os.ReadFile(r.CAFile)
	require.NoError(t, err)
	return regclient.New(regclient.WithConfigHost(config.Host{Name: r.Addr, Hostname: r.Addr, TLS: config.TLSEnabled,
		RegCert: string(ca), User: u.Name, Pass: u.Password, BlobChunk: 1000}))
}

func TestRegclient(t *testing.T) {
	r := registrytest.Start(t)
	ctx := t.Context()
	at, img := pushRandom(t, r, "interop/base:v1", 3)
	want, err := img.Digest()
	require.NoError(t, err)
	reference := func(s string) ref.Ref {
		out, err := ref.New(s)
		require.NoError(t, err)
		return out
	}
	base, copied := reference(at.String()), reference(r.Addr+"/interop/regclient:v2")
	push, pull := regClient(t, r, r.Push), regClient(t, r, r.Pull)

	require.NoError(t, push.ImageCopy(ctx, base, copied))
	m, err := pull.ManifestHead(ctx, copied)
	require.NoError(t, err)
	assert.Equal(t, want.String(), m.GetDescriptor().Digest.String())
	tags, err := pull.TagList(ctx, copied)
	require.NoError(t, err)
	assert.Equal(t, []string{"v2"}, tags.Tags)
	repos, err := pull.RepoList(ctx, r.Addr)
	require.NoError(t, err)
	assert.Equal(t, []string{"interop/base", "interop/regclient"}, repos.Repositories)

	data := bytes.Repeat([]byte("chunk"), 1000)
	d, err := push.BlobPut(ctx, copied, descriptor.Descriptor{}, io.MultiReader(bytes.NewReader(data)))
	require.NoError(t, err)
	rd, err := pull.BlobGet(ctx, copied, d)
	require.NoError(t, err)
	got, err := io.ReadAll(rd)
	require.NoError(t, err)
	require.NoError(t, rd.Close())
	assert.Equal(t, data, got)
	require.NoError(t, push.BlobMount(ctx, copied, reference(r.Addr+"/interop/mounted"), d))
	refs, err := pull.ReferrerList(ctx, copied)
	require.NoError(t, err)
	assert.Empty(t, refs.Descriptors)

	layout := reference("ocidir://" + t.TempDir() + ":v1")
	require.NoError(t, pull.ImageCopy(ctx, base, layout))
	require.Error(t, pull.ImageCopy(ctx, base, reference(r.Addr+"/interop/denied:v1")), "the pull account may not push")
	require.NoError(t, push.TagDelete(ctx, copied))
	require.NoError(t, push.ManifestDelete(ctx, copied.SetDigest(want.String())))
}
