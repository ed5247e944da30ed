package buildahengine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process that is killed in the middle of the trial leaves a directory, perhaps with its mount.
func TestNewRemovesTrialOfKilledProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "needs root")
		t.Skip("needs root, to mount")
	}
	root := t.TempDir()
	merged := filepath.Join(root, "overlay-123", "merged")
	require.NoError(t, os.MkdirAll(merged, 0o700))
	require.NoError(t, unix.Mount("tmpfs", merged, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	_, err := New(Options{Root: root})
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(root, "overlay-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
