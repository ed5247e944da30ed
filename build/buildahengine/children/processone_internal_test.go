package children

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/build/buildtest"
)

func TestPrivateMountsInAChroot(t *testing.T) {
	buildtest.Need(t, true)
	dir := t.TempDir()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its root
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = unix.Chroot(dir)
		}
		if err == nil {
			err = privateMounts()
		}
		done <- err
	}()
	assert.ErrorContains(t, <-done, "mount --bind DIR DIR")
}
