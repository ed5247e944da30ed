package deploy

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// writableMark tells the program started anew that it is in its own mount namespace already.
const writableMark = "DAYONE_SYSROOT_WRITABLE"

// MakeSysrootWritable gives this process a mount namespace in which /sysroot and /boot may be written, where the host
// mounts them read-only (sysroot.readonly=true); the rest of the system keeps them read-only. It restarts the program
// in that namespace, because a running Go program's threads cannot change theirs together, and so does not return
// then.
func MakeSysrootWritable() error {
	var st unix.Statfs_t
	if err := unix.Statfs("/sysroot", &st); err != nil || st.Flags&unix.ST_RDONLY == 0 || os.Getenv(writableMark) != "" {
		return nil // no /sysroot: not an ostree host, which is said later and better
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/sysroot", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("make /sysroot writable: %w", err)
	}
	if err := unix.Statfs("/boot", &st); err == nil && st.Flags&unix.ST_RDONLY != 0 {
		if err := unix.Mount("", "/boot", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("make /boot writable: %w", err)
		}
	}
	if err := unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), writableMark+"=1")); err != nil {
		return fmt.Errorf("start anew in the mount namespace: %w", err)
	}
	return nil
}

// BootSlack is the room in /boot for boot entries and directories beside the kernel.
const BootSlack = 1 << 20

// RequireSpace is a Fault unless so many bytes are free on dir's file system. op is what needs them.
func RequireSpace(dir string, need int64, op string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("read free space of %s: %w", dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < need {
		return &Fault{Class: ClassDiskFull, Op: op,
			Err:  fmt.Errorf("%d MiB free on the file system of %s, about %d MiB needed", free>>20, dir, need>>20),
			Next: "free or add space there"}
	}
	return nil
}
