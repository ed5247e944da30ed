package openshift

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHostSources takes a registries.conf that names registries, wherever in the file, and passes over the OS image's.
func TestHostSources(t *testing.T) {
	const registry = "[[registry]]\nlocation = \"registry.example.com\"\n"
	for _, c := range []struct {
		name, conf string
		taken      bool
	}{
		{"at the beginning", registry, true},
		{"after other settings", "unqualified-search-registries = []\n" + registry, true},
		{"indented", "  " + registry, true},
		{"in a comment", "unqualified-search-registries = []\n# [[registry]]\n", false},
		{"no file", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Root: t.TempDir()}
			if c.conf != "" {
				require.NoError(t, os.MkdirAll(filepath.Dir(o.at(hostRegistries)), 0o755))
				require.NoError(t, os.WriteFile(o.at(hostRegistries), []byte(c.conf), 0o644))
			}
			s, err := hostSources(o)
			require.NoError(t, err)
			assert.Equal(t, c.taken, len(s.RegistriesConf) > 0)
		})
	}
}
