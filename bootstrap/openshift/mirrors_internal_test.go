package openshift

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlacesOfAnImage: where the installer's registries.conf says that an image may be had. NeverContactSource becomes
// a blocked source.
func TestPlacesOfAnImage(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("1", 64)
	const source, copies = "quay.io/release/os", "mirror.example.com/os"
	mirrored := "[[registry]]\nlocation = \"" + source + "\"\n%[[registry.mirror]]\nlocation = \"" + copies + "\"\n"
	for _, c := range []struct {
		name, conf string
		places     []string
		says       string
	}{
		{"no file", "", []string{source + digest}, ""},
		{"others' mirrors", strings.ReplaceAll(mirrored, source, "quay.io/other"), []string{source + digest}, ""},
		{"a mirror", strings.Replace(mirrored, "%", "", 1), []string{copies + digest, source + digest}, ""},
		{"only a mirror", strings.Replace(mirrored, "%", "blocked = true\n", 1), []string{copies + digest}, ""},
		{"blocked", "[[registry]]\nlocation = \"quay.io\"\nblocked = true\n", nil, `registries.conf blocks "quay.io"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := filepath.Join(t.TempDir(), "registries.conf")
			if text := strings.ReplaceAll(c.conf, "%", ""); text != "" {
				require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
			}
			places, err := mirrors(conf, source+digest)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.places, places)
		})
	}
}

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
