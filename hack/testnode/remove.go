package testnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// unmountBelow unmounts the disks that sysroots in a directory have.
func unmountBelow(dir string) error {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(raw)) {
		// The fifth field is the mount point; blanks in it are escaped, and the cache's path decides whether it has some.
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(unescape.Replace(f[4]), dir+"/") {
			points = append(points, unescape.Replace(f[4]))
		}
	}
	var errs []error
	for _, p := range slices.Backward(points) { // what was mounted last goes first
		errs = append(errs, unix.Unmount(p, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// unescape undoes proc(5)'s escapes in mountinfo.
//
//nolint:gochecknoglobals // a constant in all but type
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

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
