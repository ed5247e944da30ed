package testnode

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// immutableFlag is FS_IMMUTABLE_FL of linux/fs.h.
const immutableFlag = 0x10

// removeTree removes a directory that may hold ostree sysroots: ostree makes deployments immutable (chattr +i).
func removeTree(dir string) error {
	for _, depth := range []string{"", "*", "*/*"} {
		deployments, err := filepath.Glob(filepath.Join(dir, depth, "ostree/deploy/*/deploy/*"))
		if err != nil {
			return err
		}
		for _, d := range deployments {
			if err := makeMutable(d); err != nil {
				return fmt.Errorf("remove %s: %w", d, err)
			}
		}
	}
	return os.RemoveAll(dir)
}

func makeMutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return nil //nolint:nilerr // a file system without such flags has nothing to take off
	}
	if flags&immutableFlag == 0 {
		return nil
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^immutableFlag)
}
