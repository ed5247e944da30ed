package places_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/places"
)

// TestOf: where a registries.conf says that an image may be had. NeverContactSource becomes
// a blocked source.
func TestOf(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("1", 64)
	const source, copies = "quay.io/release/os", "mirror.example.com/os"
	mirrored := "[[registry]]\nlocation = \"" + source + "\"\n%[[registry.mirror]]\nlocation = \"" + copies + "\"\n"
	for _, c := range []struct {
		name, conf string
		want       []string
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
			got, err := places.Of(conf, source+digest)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
