package standalone

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// TestProgramsOfNodes checks that a host without the programs that nodes get is refused before anything starts, and
// that a host whose images go to the user's registry does not need dayone-registry.
func TestProgramsOfNodes(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "dayone-registry")
	require.NoError(t, os.WriteFile(there, []byte("program"), 0o700))
	own := installconfig.Registry{Type: installconfig.RegistryCluster}
	for _, c := range []struct {
		name, daemon, file string
		registry           installconfig.Registry
		reason             string
	}{
		{"there", there, there, own, ""},
		{"missing", there, filepath.Join(dir, "other"), own, "--registry-program"},
		{"a directory", there, dir, own, "is not a regular file"},
		{"a registry of the user's", there, "", installconfig.Registry{Type: installconfig.RegistryExternal}, ""},
		{"no agent", filepath.Join(dir, "other"), there, own, "--daemon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{DaemonBinary: c.daemon, RegistryBinary: c.file}
			err := o.checkPrograms(installconfig.Config{Registry: c.registry})
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.reason)
		})
	}
}

// TestMastersBeginWithWhatRegistriesShare: control-plane nodes get program, CA and users beside their config.
func TestMastersBeginWithWhatRegistriesShare(t *testing.T) {
	program := filepath.Join(t.TempDir(), "dayone-registry")
	require.NoError(t, os.WriteFile(program, []byte("program"), 0o700))
	shared, err := clusterregistry.LoadOrCreate(t.TempDir(), "api-int.example.com:22626")
	require.NoError(t, err)
	config, err := flow{Options: Options{RegistryBinary: program},
		host: day1.Host{In: &preflight.Input{Sidecar: &installconfig.Sidecar{}, Shared: shared}}}.registryOfMasters()
	require.NoError(t, err)
	dir := t.TempDir()
	var paths []string
	for _, f := range config.Storage.Files {
		paths = append(paths, f.Path)
		if f.Path == clusterregistry.Fetched {
			continue
		}
		content, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(f.Path)), content, 0o600))
		assert.Equal(t, 0o600, *f.Mode)
	}
	assert.Equal(t, []string{clusterregistry.Fetched, wanted.Dir + "/ca.pem", wanted.Dir + "/users"}, paths)
	have, err := poolaccounts.ParseShared(shared.Secret().Data)
	require.NoError(t, err)
	assert.Equal(t, have, poolaccounts.ReadShared(dir), "the controller's Secret has the same")
}
