package standalone

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig"
)

// TestProgramOfTheMastersRegistries checks that a host without dayone-registry is refused before anything starts, and
// that a host whose images go to the user's registry does not need the program.
func TestProgramOfTheMastersRegistries(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "dayone-registry")
	require.NoError(t, os.WriteFile(there, []byte("program"), 0o700))
	own := installconfig.Registry{Type: installconfig.RegistryCluster}
	for _, c := range []struct {
		name, file string
		registry   installconfig.Registry
		reason     string
	}{
		{"there", there, own, ""},
		{"missing", filepath.Join(dir, "other"), own, "--registry-program"},
		{"a directory", dir, own, "is not a regular file"},
		{"a registry of the user's", "", installconfig.Registry{Type: installconfig.RegistryExternal}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Options{RegistryBinary: c.file}.checkRegistryBinary(installconfig.Config{Registry: c.registry})
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.reason)
		})
	}
}
