package standalone_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/phasetest"
)

// withFile is an OCI layout of an image with a file more.
func withFile(t *testing.T, from, name string, content []byte) string {
	index, err := layout.ImageIndexFromPath(from)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	more, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	require.NoError(t, err)
	img, err = mutate.AppendLayers(img, v1.Layer(more))
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "image")
	_, err = layout.Write(dir, mutate.AppendManifests(emptyIndex(t, from), mutate.IndexAddendum{Add: img}))
	require.NoError(t, err)
	return dir
}

// emptyIndex is the layout's index without its images.
func emptyIndex(t *testing.T, from string) v1.ImageIndex {
	index, err := layout.ImageIndexFromPath(from)
	require.NoError(t, err)
	return mutate.RemoveManifests(index, func(v1.Descriptor) bool { return true })
}

// TestBaseWithARegistryProgram: a base image that brings a dayone-registry of its own would let masters run that one.
func TestBaseWithARegistryProgram(t *testing.T) {
	self, err := os.Executable() // the host serves it as dayone-registry
	require.NoError(t, err)
	own, err := os.ReadFile(self)
	require.NoError(t, err)
	for _, c := range []struct {
		name, containerfile string
		program             []byte
		refused             bool
	}{
		{"another one", "FROM configs\n", []byte("older"), true},
		{"the one of this host", "FROM configs\n", own, false},
		{"the user decides", "FROM configs\nRUN rm /usr/bin/dayone-registry\n", []byte("older"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.mastersHaveRegistries(c.containerfile)
			b.order.Base = withFile(t, b.order.Base, "usr/bin/dayone-registry", c.program)
			ended := phasetest.Start(t, b.order)()
			if !c.refused {
				require.NoError(t, ended.Err, ended.Log)
				return
			}
			require.Error(t, ended.Err)
			assert.Contains(t, ended.Log, "the base image brings another /usr/bin/dayone-registry than this dayone has")
			assert.NotContains(t, ended.Events, "build-master started")
		})
	}
}
