package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, units)
	require.NoError(t, DisarmWatch(t.Context(), root), "none is no error")
	require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(watchMark)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, watchMark), []byte(firedReturn+"\n"), 0o600))
	fired, returned, err := WatchFired(root)
	require.NoError(t, err)
	assert.True(t, fired && returned, "that of another soft reboot")
	require.NoError(t, armWatches(root))
	require.NoError(t, armWatches(root), "twice is once")
	fired, _, err = WatchFired(root)
	require.NoError(t, err)
	assert.False(t, fired)
	assert.True(t, WatchArmed(root))
	wanted, err := os.Stat(filepath.Join(dir, "timers.target.wants", watchName+".timer"))
	require.NoError(t, err, "the link leads to the timer")
	assert.NotZero(t, wanted.Size())
	for _, dir := range []string{dir, filepath.Join(root, second)} {
		service, err := os.ReadFile(filepath.Join(dir, watchName+".service"))
		require.NoError(t, err)
		assert.Contains(t, string(service), "Environment="+skipAuto+"\n")
		assert.True(t, strings.HasSuffix(string(service), "\nExecStart=systemctl --no-block reboot\n"))
	}
	require.NoError(t, os.RemoveAll(dir))
	assert.False(t, WatchArmed(root), "the second one waits")
	require.NoError(t, os.CopyFS(filepath.Join(root, lasting), os.DirFS(filepath.Join(root, second))))
	assert.True(t, WatchArmed(root), "it is in place")
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
