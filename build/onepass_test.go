package build_test

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

// A layer that the engine unpacks is not read from the registry; all others are.
func TestTakeInReadsLayersOnce(t *testing.T) {
	reg := registrytest.Start(t)
	base := buildtest.Push(t, reg, buildtest.Base{Fixed: true, Layers: 3, LayerSize: 100,
		Files: map[string]string{"/etc/known": "yes"}})
	target, _, _ := strings.Cut(base.Reference, "@")
	image := pull(t, reg, base.Reference)
	layers, err := image.Layers()
	require.NoError(t, err)
	contents := make([][]byte, len(layers))
	for i, layer := range layers {
		r, err := layer.Uncompressed()
		require.NoError(t, err)
		contents[i], err = io.ReadAll(r)
		require.NoError(t, err)
	}
	for _, layer := range layers[1:] { // only the lowest is left
		digest, err := layer.Digest()
		require.NoError(t, err)
		removeBlob(t, reg, target, digest.String())
	}
	give := func(to build.Unpacked, which ...int) {
		for _, i := range which {
			to(i, bytes.NewReader(contents[i]))
		}
	}
	last := len(layers) - 1
	all := func(from int) (out []int) {
		for i := from; i <= last; i++ {
			out = append(out, i)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		unpack func(build.Unpacked)
		error  string
	}{
		{"all", func(to build.Unpacked) { give(to, all(0)...) }, ""},
		{"all but the one that the registry has", func(to build.Unpacked) { give(to, all(1)...) }, ""},
		{"one twice", func(to build.Unpacked) { give(to, 0, 1, 1); give(to, all(2)...) }, ""},
		{"places that the image does not have", func(to build.Unpacked) {
			give(to, all(0)...)
			to(last+1, strings.NewReader("what?"))
		}, ""},
		{"none", nil, "read files of base image"},
		{"a layer is missing", func(to build.Unpacked) { give(to, 0, 1); give(to, all(3)...) }, "read layer 2"},
		{"a layer is wrong, which shows at its very end", func(to build.Unpacked) {
			to(0, io.MultiReader(bytes.NewReader(contents[0]), iotest.ErrReader(io.ErrUnexpectedEOF)))
			give(to, all(1)...)
		}, "unexpected EOF"},
		{"a layer breaks off", func(to build.Unpacked) {
			give(to, 0)
			to(1, io.MultiReader(bytes.NewReader(contents[1][:512]), iotest.ErrReader(io.ErrUnexpectedEOF)))
			give(to, all(2)...)
		}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as many layers at the same time
			b := build.NewBuilder(build.BuilderOptions{Engine: &engine{unpack: c.unpack}, StateDir: t.TempDir()})
			job := build.BaseJob{Base: base, Containerfile: "FROM configs\nRUN true\n",
				Registry: build.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile}}
			err := b.TakeIn(t.Context(), job)
			if c.error != "" {
				require.ErrorContains(t, err, c.error)
				return
			}
			require.NoError(t, err)
			sum, err := b.BaseFile(t.Context(), job, "/etc/unknown")
			require.NoError(t, err, "the tree is kept")
			assert.Empty(t, sum)
		})
	}
}
