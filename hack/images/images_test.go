package images_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/hack/images"
	"dayone.dev/dayone/registry/registrytest"
)

func TestImageIsReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("short run: builds a program")
	}
	p, err := images.Find("dayone-daemon")
	require.NoError(t, err)
	binary, err := p.Build(t.Context(), "../..", t.TempDir(), "v1.2.3")
	require.NoError(t, err)
	var references []string
	for range 2 {
		reg := registrytest.Start(t)
		client, err := appendengine.NewClient(appendengine.Access{CAFile: reg.CAFile, AuthFile: reg.PushAuthFile})
		require.NoError(t, err)
		defer client.Close()
		reference, err := images.Push(t.Context(), client, p, binary, reg.Addr+"/dayone/"+p.Name,
			images.Options{Version: "v1.2.3", Tag: "v1"})
		require.NoError(t, err)
		image, err := client.Read(t.Context(), reference, "linux/"+runtime.GOARCH)
		require.NoError(t, err)
		references = append(references, image.Ref.DigestStr())
		assert.Equal(t, "v1.2.3", image.Labels()["org.opencontainers.image.version"])
		assert.Equal(t, []string{"dayone-daemon"}, image.Config.Config.Entrypoint)
		layers, err := image.Layers(0)
		require.NoError(t, err)
		tree, err := basetree.Read(t.Context(), layers)
		require.NoError(t, err)
		for path, mode := range map[string]int64{"/usr/bin/dayone-daemon": 0o755, "/etc/passwd": 0o644, "/etc/group": 0o644,
			"/tmp": 0o1777, "/var/tmp": 0o1777, "/etc/ssl/certs/ca-certificates.crt": 0o644} {
			e, ok := tree.Lookup(path)
			require.True(t, ok, path)
			assert.Equal(t, mode, int64(e.Mode), path)
		}
	}
	assert.Equal(t, references[0], references[1])
}

func TestDynamicProgramsAreRefused(t *testing.T) {
	dir := t.TempDir()
	p, err := images.Find("dayone-daemon")
	require.NoError(t, err)
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755))
	_, err = images.Push(t.Context(), nil, p, text, "r.example/x", images.Options{})
	assert.Error(t, err)
	_, err = images.Push(t.Context(), nil, p, "/bin/sh", "r.example/x", images.Options{})
	assert.ErrorContains(t, err, "not static")
	_, err = images.Find("nothing")
	assert.ErrorContains(t, err, "nothing")
}
