package build_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

const final = "registry.example.com/ocp/master-os"

// TestBuildIsSigned: an image under an address counts only if a known key has signed it.
func TestBuildIsSigned(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	r.Final = final
	key, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	newer, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	options := reg.Pusher(t)
	at := func(reference string) sign.Image {
		return sign.Image{Repository: final, Endpoint: transfer.Endpoint{Reference: reference, CAFile: reg.CAFile,
			AuthFile: reg.PullAuthFile}}
	}
	with := func(k *sign.Keys) *build.Result {
		t.Helper()
		result, err := build.NewBuilder(build.BuilderOptions{RetryDelay: time.Millisecond, Keys: k}).Build(t.Context(), r)
		require.NoError(t, err)
		return result
	}
	repository, err := name.NewRepository(r.Target)
	require.NoError(t, err)
	signatures := func(digest string) name.Tag { return repository.Tag(strings.Replace(digest, ":", "-", 1) + ".sig") }

	unsigned := with(nil)
	keys := &sign.Keys{Key: key}
	first := with(keys)
	assert.False(t, first.Reused, "what an earlier version made has no signature")
	assert.Equal(t, unsigned.Digest, first.Digest)
	require.NoError(t, keys.Verify(t.Context(), at(first.Reference)))
	assert.True(t, with(keys).Reused)
	p, err := sign.ReadProvenance(t.Context(), at(first.Reference), key.Public)
	require.NoError(t, err)
	said := p.BuildDefinition.ExternalParameters
	assert.Equal(t, []string{first.Address, first.Inputs.ConfigHash, "master"}, []string{said.Address, said.ConfigHash,
		said.Pool})
	assert.Equal(t, sign.Digest(first.Inputs.Base), p.BuildDefinition.ResolvedDependencies[0].Digest)
	_, err = sign.ReadProvenance(t.Context(), at(first.Reference), newer.Public)
	require.ErrorIs(t, err, transfer.ErrNotAllowed)

	t.Run("an image that somebody else put under the address", func(t *testing.T) {
		address, err := r.Address()
		require.NoError(t, err)
		ours, err := remote.Image(repository.Digest(first.Digest), options...)
		require.NoError(t, err)
		config, err := ours.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.Author = "somebody else"
		theirs, err := mutate.ConfigFile(ours, config)
		require.NoError(t, err)
		require.NoError(t, remote.Write(repository.Tag(build.Tag(address)), theirs, options...))
		digest, err := theirs.Digest()
		require.NoError(t, err)
		copySignatures(t, signatures(first.Digest), signatures(digest.String()), options)

		again := with(keys)
		assert.False(t, again.Reused)
		assert.Equal(t, first.Digest, again.Digest)
		assert.Equal(t, first.Digest, tagged(t, reg, r))
		require.ErrorIs(t, keys.Verify(t.Context(), at(r.Target+"@"+digest.String())), transfer.ErrNotAllowed)
	})
	t.Run("the signature was deleted", func(t *testing.T) {
		require.NoError(t, remote.Delete(signatures(first.Digest), options...))
		again := with(keys)
		assert.False(t, again.Reused)
		require.NoError(t, keys.Verify(t.Context(), at(again.Reference)))
	})
	t.Run("a new key, the one before counts", func(t *testing.T) {
		again := with(&sign.Keys{Key: newer, Public: []sign.PublicKey{key.Public}})
		assert.True(t, again.Reused)
		require.NoError(t, sign.Verify(t.Context(), at(again.Reference), newer.Public))
		require.NoError(t, sign.Verify(t.Context(), at(again.Reference), key.Public))
	})
	t.Run("who has no key looks only", func(t *testing.T) {
		assert.True(t, with(&sign.Keys{Public: []sign.PublicKey{key.Public}}).Reused)
	})
}

// bills are played: the real ones are in package sbom, which has tests with this package.
type bills struct {
	write func(build.Finished) ([]byte, error)
}

func (b bills) Take([]basetree.Layer) (build.Inventory, error) { return inventory{}, nil }

func (b bills) Write(_ context.Context, f build.Finished) ([]byte, error) { return b.write(f) }

// inventory is one that has seen nothing.
type inventory struct{}

func (inventory) Copy(int, string, *tar.Header) io.WriteCloser { return nil }
func (inventory) Encode(context.Context) ([]byte, error)       { return []byte("listed"), nil }
func (inventory) Close() error                                 { return nil }

// TestBillOfMaterials: the same image gets the same document, which is attached once; one that cannot be made stops
// nothing.
func TestBillOfMaterials(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	r.Options.Rebuild = true
	with := func(write func(build.Finished) ([]byte, error)) *build.Result {
		t.Helper()
		result, err := build.NewBuilder(build.BuilderOptions{BillsOfMaterials: bills{write: write}}).Build(t.Context(), r)
		require.NoError(t, err)
		return result
	}
	var result *build.Result
	for range 2 {
		result = with(func(f build.Finished) ([]byte, error) {
			assert.Less(t, f.BaseLayers, len(f.Layers))
			assert.Equal(t, "listed", string(f.Inventory))
			return []byte("of " + f.Name), nil
		})
	}
	with(func(build.Finished) ([]byte, error) { return nil, errors.New("a damaged database") })
	found, err := transfer.Documents(t.Context(), transfer.Endpoint{Reference: result.Reference, CAFile: reg.CAFile,
		AuthFile: reg.PullAuthFile}, "application/spdx+json")
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("of " + result.Reference)}, found)
}

func copySignatures(t *testing.T, from, to name.Tag, options []remote.Option) {
	t.Helper()
	img, err := remote.Image(from, options...)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, img, options...))
}

func TestBuildThatCannotBeSigned(t *testing.T) {
	reg := registrytest.Start(t)
	r := buildtest.Request(t, reg, buildtest.Push(t, reg, buildtest.Base{}), inline)
	r.Final = "no repository:"
	key, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	_, err = build.NewBuilder(build.BuilderOptions{RetryDelay: time.Millisecond,
		Keys: &sign.Keys{Key: key}}).Build(t.Context(), r)
	f := build.AsFailure(err)
	require.NotNil(t, f, "%v", err)
	assert.Equal(t, "sign", f.Step)
	assert.Empty(t, tagged(t, reg, r), "nobody finds it")
}
