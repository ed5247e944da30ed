package openshift_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/openshift/patch"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// liveImage is a prepared install directory for the agent-based installer, as its image has been made.
func liveImage(t *testing.T, registry installconfig.RegistryType) *preflight.Input {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "install")
	require.NoError(t, assets.WriteSample(dir))
	for _, consumed := range []string{"install-config.yaml", "openshift"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, consumed)))
	}
	side := installconfig.Sidecar{Cluster: installconfig.Cluster{Name: "c", BaseDomain: "example.com", Agent: true},
		Config: installconfig.Config{Flow: installconfig.FlowOpenShift, LayeringDir: "layering",
			Registry:          installconfig.Registry{Type: registry, Name: "api-int.c.example.com:22626"},
			BootstrapRegistry: installconfig.BootstrapRegistry{Port: 9500},
			Pools: []installconfig.Pool{{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
				{Name: "worker", BuildAt: installconfig.BuildAtCluster}}}}
	if registry == installconfig.RegistryCluster {
		require.NoError(t, preflight.MakeShared(dir, &side))
	}
	require.NoError(t, side.Write(dir))
	in, err := preflight.LoadLayering(dir, "linux/amd64")
	require.NoError(t, err)
	return in
}

// TestAdditionsOfLiveImage: what every host boots starts nothing of dayone's before the installer's bootstrap.
func TestAdditionsOfLiveImage(t *testing.T) {
	program := openshift.Program{Image: "registry.example.com/dayone@sha256:" + strings.Repeat("a", 64)}
	in := liveImage(t, installconfig.RegistryExternal)
	_, err := openshift.Additions(in, openshift.Program{URL: "https://example.com/dayone",
		SHA512: strings.Repeat("a", 128)})
	require.ErrorContains(t, err, "fetches no files")

	a, err := openshift.Additions(in, program)
	require.NoError(t, err)
	assert.Equal(t, installconfig.AgentIgnition, a.Target)
	require.Len(t, a.Units, 3)
	for _, u := range a.Units {
		assert.NotContains(t, u.Contents, "multi-user.target", u.Name)
		assert.Contains(t, u.Contents, "WantedBy=bootkube.service", u.Name)
	}
	require.Len(t, a.DropIns, 1)
	assert.NotContains(t, a.DropIns[0].Contents, "ExecStartPre=", "assisted-installer waits for the unit's start")
	files := contents(a)
	for _, path := range []string{bootstrapnode.AgentDiskPath, bootstrapnode.AgentProgressPath, bootstrapnode.CarryPath} {
		assert.NotEmpty(t, files[path], path)
	}
	assert.NotContains(t, files[bootstrapnode.ProgramEnvPath], bootstrapnode.AlsoFetch, "a registry of the user's stays")

	in = liveImage(t, installconfig.RegistryCluster)
	a, err = openshift.Additions(in, program)
	require.NoError(t, err)
	assert.Contains(t, contents(a)[bootstrapnode.ProgramEnvPath], bootstrapnode.AlsoFetch, "its images go onto the disk")
}

// contents are the files of additions by their paths.
func contents(a patch.Additions) map[string]string {
	files := map[string]string{}
	for _, f := range a.Files {
		files[f.Path] = string(f.Content)
	}
	return files
}
