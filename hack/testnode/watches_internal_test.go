package testnode

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllowWatches(t *testing.T) {
	for _, c := range []struct{ name, has, want, says string }{
		{"the kernel's own", "128\n", "1024", ""},
		{"enough", "8192\n", "8192\n", ""},
		{"no number", "many\n", "many\n", "read limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "max_user_instances")
			require.NoError(t, os.WriteFile(file, []byte(c.has), 0o600))
			err := allowWatches(file)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
			} else {
				require.NoError(t, err)
			}
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(raw))
		})
	}
	require.ErrorContains(t, allowWatches("/nowhere"), "inotify")
}
