package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, units)
	require.NoError(t, DisarmWatch(t.Context(), root), "none is no error")
	require.NoError(t, armWatch(dir))
	require.NoError(t, armWatch(dir), "twice is once")
	assert.True(t, WatchArmed(root))
	wanted, err := os.Stat(filepath.Join(dir, "timers.target.wants", watchName+".timer"))
	require.NoError(t, err, "the link leads to the timer")
	assert.NotZero(t, wanted.Size())
	service, err := os.ReadFile(filepath.Join(dir, watchName+".service"))
	require.NoError(t, err)
	assert.Contains(t, string(service), "Environment="+skipAuto+"\nExecStart=systemctl --no-block reboot\n")
}

func TestNextRootMounted(t *testing.T) {
	for _, c := range []struct {
		name, mounts string
		want         bool
	}{
		{"none", "27 1 8:1 / / rw - xfs /dev/sda4 rw\n", false},
		{"one below it", "27 1 8:1 / /run/nextroot/etc rw - xfs /dev/sda4 rw\n", false},
		{"prepared", "27 1 8:1 / / rw - xfs /dev/sda4 rw\n88 27 0:41 / /run/nextroot ro - overlay composefs ro\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/1"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "proc/1/mountinfo"), []byte(c.mounts), 0o600))
			got, err := NextRootMounted(root)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
