package buildahengine_test

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/build/buildtest"
)

// altered pushes the bench's base with other words in its manifest and config, and makes it the base. What it says need
// not be true.
func (b *bench) altered(change func(*v1.Manifest, *v1.ConfigFile)) {
	t := b.t
	t.Helper()
	ref, err := name.NewDigest(b.base.Reference)
	require.NoError(t, err)
	img, err := remote.Image(ref, b.reg.Pusher(t)...)
	require.NoError(t, err)
	manifest, err := img.Manifest()
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	change(manifest, config)
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	blob := static.NewLayer(raw, manifest.Config.MediaType)
	require.NoError(t, remote.WriteLayer(ref.Context(), blob, b.reg.Pusher(t)...))
	manifest.Config.Digest, err = blob.Digest()
	require.NoError(t, err)
	manifest.Config.Size = int64(len(raw))
	words, err := json.Marshal(manifest)
	require.NoError(t, err)
	require.NoError(t, remote.Put(ref.Context().Tag("altered"), rawManifest{words, manifest.MediaType},
		b.reg.Pusher(t)...))
	b.base = build.Image{Reference: ref.Context().Name() + "@" + digest.FromBytes(words).String()}
}

// rawManifest is pushed as it is.
type rawManifest struct {
	words []byte
	kind  types.MediaType
}

func (r rawManifest) RawManifest() ([]byte, error)        { return r.words, nil }
func (r rawManifest) MediaType() (types.MediaType, error) { return r.kind, nil }

// receiver keeps the SHA-256 of each layer that an engine gives whole, and the errors of the others.
type receiver struct {
	whole map[int]string
	errs  map[int]error
}

func newReceiver() receiver { return receiver{map[int]string{}, map[int]error{}} }

func (r receiver) take(layer int, content io.Reader) {
	sum := digest.Canonical.Digester()
	if _, err := io.Copy(sum.Hash(), content); err != nil {
		r.errs[layer] = err
		return
	}
	r.whole[layer] = sum.Digest().String()
}

// The one who takes in a base gets each layer once, as the base's config names it. Who reads nothing stops nothing.
func TestGivesTheLayersThatItUnpacks(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Layers: 3, LayerSize: 3 << 20, Repository: "os/given"})
	ref, err := name.NewDigest(b.base.Reference)
	require.NoError(t, err)
	img, err := remote.Image(ref, b.reg.Pusher(t)...)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	want := map[int]string{}
	for i, d := range config.RootFS.DiffIDs {
		want[i] = d.String()
	}
	job, got, again := baseJob(b.request(takenText)), newReceiver(), newReceiver()
	require.NoError(t, b.engine.TakeInBase(t.Context(), job, got.take))
	assert.Equal(t, want, got.whole)
	assert.Empty(t, got.errs)
	require.NoError(t, b.engine.TakeInBase(t.Context(), job, again.take))
	assert.Equal(t, newReceiver(), again, "the storage has them")

	b.root = t.TempDir()
	b.open(buildahengine.Options{})
	begun := 0
	require.NoError(t, b.engine.TakeInBase(t.Context(), job, func(int, io.Reader) { begun++ }))
	assert.Equal(t, len(want), begun)
	assert.Len(t, b.unpacked(), len(want))
}

// A layer that is not what the base's config says fails, and no part of it stays under the name that the config gives.
func TestLayerIsNotWhatTheConfigSays(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Layers: 2, LayerSize: 1 << 20, Repository: "os/wrong"})
	wrong := strings.Repeat("0", 64)
	b.altered(func(_ *v1.Manifest, config *v1.ConfigFile) { config.RootFS.DiffIDs[1].Hex = wrong })
	job := baseJob(b.request(takenText))
	got := newReceiver()
	err := b.engine.TakeInBase(t.Context(), job, got.take)
	require.ErrorContains(t, err, "its content is not sha256:"+wrong)
	var f *build.Failure
	require.True(t, errors.As(err, &f), "%v", err)
	assert.Equal(t, "base", f.Step)
	assert.Len(t, b.unpacked(), 1, "the layer below was right")
	assert.Len(t, got.whole, 1)
	require.ErrorIs(t, got.errs[1], io.ErrUnexpectedEOF, "a reader must not take a wrong layer for whole")
	require.ErrorContains(t, b.engine.TakeInBase(t.Context(), job, nil), wrong, "the second time as well")
	b.clean()
}

// A base that has one layer twice, and one whose layers stand on others in another base, get what they need.
func TestTakesInLayersThatTheStorageKnows(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	b.base = buildtest.Push(t, b.reg, buildtest.Base{Layers: 3, LayerSize: 1 << 20, Repository: "os/known"})
	require.NoError(t, b.engine.TakeInBase(t.Context(), baseJob(b.request(takenText)), nil))
	require.Len(t, b.unpacked(), 4)
	b.altered(func(m *v1.Manifest, config *v1.ConfigFile) {
		l, d := m.Layers, config.RootFS.DiffIDs
		m.Layers, config.RootFS.DiffIDs = []v1.Descriptor{l[0], l[2], l[1], l[2]}, []v1.Hash{d[0], d[2], d[1], d[2]}
	})
	r := b.request(takenText)
	require.NoError(t, b.engine.TakeInBase(t.Context(), baseJob(r), nil))
	assert.Len(t, b.unpacked(), 7, "of four layers the lowest is shared")
	taken := b.mustBuild(r)
	left, err := filepath.Glob(filepath.Join(b.root, "tmp", "*"))
	require.NoError(t, err)
	assert.Empty(t, left)

	b.root, b.state = t.TempDir(), t.TempDir()
	b.open(buildahengine.Options{})
	alone := b.request(takenText)
	alone.Options.Rebuild = true
	assert.Equal(t, taken.Digest, b.mustBuild(alone).Digest)
}
