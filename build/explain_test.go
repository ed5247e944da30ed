package build_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// explained is a request that has something to say in every part of its result, without a container.
func explained(t *testing.T, reg *registrytest.Registry, base build.Image) build.Request {
	r := buildtest.Request(t, reg, base, "FROM configs\nENV TOKEN=abcdefgh\nCOPY <<EOF /etc/from-config\nanother\nEOF\n")
	r.Config = buildtest.Config(t, map[string]string{"/var/lib/mine": "x"})
	r.Config.Spec.KernelArguments = []string{"nosmt"}
	r.ContainerfileName = "layering/master.yaml"
	return r
}

func TestReuseExplains(t *testing.T) {
	reg := registrytest.Start(t)
	b, r := builder(t), explained(t, reg, buildtest.Push(t, reg, buildtest.Base{}))
	fresh, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	rules := map[string]int{}
	for _, w := range fresh.Warnings {
		rules[w.Rule]++
		assert.Equal(t, w.Rule == "config-overridden", strings.HasSuffix(w.Message, ": /etc/from-config"), w.Message)
	}
	require.Equal(t, map[string]int{"credentials": 1, "first-boot": 1, "config-overridden": 1}, rules,
		"one finding each of Containerfile, config and image")
	require.Len(t, fresh.Placements, 2)

	same := func(reused *build.Result) {
		t.Helper()
		assert.True(t, reused.Reused)
		assert.Equal(t, fresh.Placements, reused.Placements)
		assert.Equal(t, fresh.Warnings, reused.Warnings)
		assert.Equal(t, fresh.Labels, reused.Labels)
		assert.Equal(t, fresh.Layers, reused.Layers)
		assert.Equal(t, fresh.Size, reused.Size)
		assert.Equal(t, fresh.Engine, reused.Engine)
		assert.Equal(t, fresh.Inputs, reused.Inputs)
		assert.Contains(t, reused.Reason, "it was made with the append engine: "+fresh.Reason)
	}
	again, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	same(again)
	elsewhere, err := builder(t).Build(t.Context(), r)
	require.NoError(t, err)
	same(elsewhere)

	other := r
	other.ContainerfileName, other.Config = "layering/worker.yaml", r.Config.DeepCopy()
	other.Config.Name = "rendered-worker-4567"
	named, err := b.Build(t.Context(), other)
	require.NoError(t, err)
	require.True(t, named.Reused)
	for _, w := range named.Warnings {
		assert.Contains(t, []string{"layering/worker.yaml", "rendered-worker-4567"}, w.File,
			"places are those of the one who asks: %s", w.Error())
	}
}

func TestReuseWithoutNote(t *testing.T) {
	reg := registrytest.Start(t)
	b, r := builder(t), explained(t, reg, buildtest.Push(t, reg, buildtest.Base{}))
	fresh, err := b.Build(t.Context(), r)
	require.NoError(t, err)
	note, err := name.NewTag(r.Target + ":" + "note-" + fresh.Address)
	require.NoError(t, err)
	head, err := remote.Head(note, reg.Pusher(t)...)
	require.NoError(t, err)
	require.NoError(t, remote.Delete(note.Context().Digest(head.Digest.String()), reg.Pusher(t)...))
	for range 2 { // the first writes the note anew
		again, err := b.Build(t.Context(), r)
		require.NoError(t, err)
		assert.True(t, again.Reused)
		assert.Equal(t, fresh.Digest, again.Digest)
		assert.Equal(t, fresh.Placements, again.Placements)
		assert.Equal(t, fresh.Warnings, again.Warnings)
		assert.Equal(t, fresh.Layers, again.Layers)
		assert.Equal(t, build.EngineAppend, again.Engine)
		assert.Contains(t, again.Reason, "it was made with the append engine: "+fresh.Reason)
		_, err = remote.Head(note, reg.Pusher(t)...)
		require.NoError(t, err)
	}
}
