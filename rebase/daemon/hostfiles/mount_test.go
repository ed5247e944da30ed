package hostfiles_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/daemon/hostfiles"
)

// On ostree hosts /var is a file system of its own, and /usr/local, /opt and /root lead there.
func TestWhatIsKeptComesBackToAnotherFileSystem(t *testing.T) {
	root := t.TempDir()
	on := filepath.Join(root, "var")
	require.NoError(t, os.Mkdir(on, 0o755))
	if err := syscall.Mount("tmpfs", on, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("a file system cannot be mounted: " + err.Error())
		}
		t.Skip("a file system cannot be mounted: " + err.Error())
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(on, syscall.MNT_DETACH)) })
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr"), 0o755))
	require.NoError(t, os.Symlink("../var/usrlocal", filepath.Join(root, "usr/local")))
	require.NoError(t, os.MkdirAll(filepath.Join(on, "usrlocal/bin"), 0o755))
	h := hostfiles.Host{Root: root}
	write(t, root, "/usr/local/bin/tool", "the node's")
	require.NoError(t, os.Chmod(filepath.Join(root, "/usr/local/bin/tool"), 0o750|os.ModeSetuid))
	require.NoError(t, os.Symlink("tool", filepath.Join(root, "/usr/local/bin/link")))
	c := config(file("/usr/local/bin/link", "x", 0o755), file("/usr/local/bin/new", "x", 0o755),
		file("/usr/local/bin/tool", "x", 0o755))
	require.NoError(t, apply(h, config(), c))
	assert.Equal(t, "x", read(t, root, "/usr/local/bin/tool"))
	require.NoError(t, apply(h, c, config()))
	assert.Equal(t, "the node's", read(t, root, "/usr/local/bin/tool"))
	info, err := os.Stat(filepath.Join(root, "/usr/local/bin/tool"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o750)|os.ModeSetuid, info.Mode())
	target, err := os.Readlink(filepath.Join(root, "/usr/local/bin/link"))
	require.NoError(t, err)
	assert.Equal(t, "tool", target)
	assert.NoFileExists(t, filepath.Join(root, "/usr/local/bin/new"))
	require.NoError(t, h.Forget(config(), c))
}
