package firstboot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesOfNetworkCardsChangeOnlyFromEnterpriseLinux8And9(t *testing.T) {
	for _, c := range []struct {
		name string
		want bool
	}{
		{"ID=rhcos\nPLATFORM_ID=\"platform:el9\"\n", true}, {"PLATFORM_ID=platform:el8\n", true},
		{"PLATFORM_ID='platform:el10'\n", false},
		{"ID=fedora\nPLATFORM_ID=\"platform:f42\"\n", false}, {"ID=debian\n", false}, {"", false},
	} {
		root := t.TempDir()
		if c.name != "" {
			require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "etc/os-release"), []byte(c.name), 0o644))
		}
		got, err := namesMayChange(root)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, c.name)
	}
}
