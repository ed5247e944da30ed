package build_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// tagged gives the digest under the tag of an address, empty without one.
func tagged(t *testing.T, reg *registrytest.Registry, r build.Request) string {
	t.Helper()
	address, err := r.Address()
	require.NoError(t, err)
	tag, err := name.NewTag(r.Target + ":" + build.Tag(address))
	require.NoError(t, err)
	d, err := remote.Head(tag, reg.Pusher(t)...)
	if appendengine.StatusOf(err) == http.StatusNotFound {
		return ""
	}
	require.NoError(t, err)
	return d.Digest.String()
}

func TestRefusedImageHasNoTag(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), "FROM configs\nLABEL ostree.final-diffid=x\n")
	for range 2 {
		result, err := builder(t).Build(t.Context(), r)
		require.Nil(t, result)
		f := build.AsFailure(err)
		require.NotNil(t, f, "%v", err)
		assert.Equal(t, "check", f.Step)
		assert.Empty(t, tagged(t, reg, r))
	}
}

// TestNoTagBeforeCheck: between push and check a process may be killed.
func TestNoTagBeforeCheck(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	ctx, kill := context.WithCancel(t.Context())
	killed := build.NewBuilder(build.BuilderOptions{RetryDelay: time.Millisecond, Progress: func(e build.Event) {
		if e.Phase == "check" {
			kill()
		}
	}})
	_, err := killed.Build(ctx, r)
	require.Error(t, err)
	assert.Empty(t, tagged(t, reg, r))
	result, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)
	assert.False(t, result.Reused)
	assert.Equal(t, result.Digest, tagged(t, reg, r))
}

// TestUncheckedImageIsRebuilt: earlier versions set the tag first.
func TestUncheckedImageIsRebuilt(t *testing.T) {
	reg := registrytest.Start(t)
	from := buildtest.Push(t, reg, buildtest.Base{})
	r := buildtest.Request(t, reg, from, "")
	address, err := r.Address()
	require.NoError(t, err)
	client, err := appendengine.NewClient(appendengine.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile})
	require.NoError(t, err)
	defer client.Close()
	base, err := client.Read(t.Context(), from.Reference, "linux/amd64")
	require.NoError(t, err)
	bad, err := client.Append(t.Context(), base, r.Target, build.Tag(address), appendengine.Change{
		Labels: map[string]string{build.LabelAddress: address, "ostree.final-diffid": "x"}, Created: base.Created(),
		BaseLayers: len(base.Manifest.Layers)})
	require.NoError(t, err)
	require.Equal(t, bad.Ref.DigestStr(), tagged(t, reg, r))

	result, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)
	assert.False(t, result.Reused)
	assert.NotEqual(t, bad.Ref.DigestStr(), result.Digest)
	assert.Equal(t, result.Digest, tagged(t, reg, r))
	again, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)
	assert.True(t, again.Reused)
}
