package testnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// ownTree is a template's checkout of an image, there only for images whose own ostree must deploy them.
	ownTree = "tree"
	// sysrootInTree is where ownOSTree shows the sysroot.
	sysrootInTree = "/sysroot"
	// rootConfig of an image says how ostree makes its root. Source: ostree-prepare-root(1).
	rootConfig = "/usr/lib/ostree/prepare-root.conf"
)

// checkOutOwn checks an image out where its root is to be composefs: this machine's ostree may be too old to write what
// such a deployment is mounted from. The files are the repository's own, linked.
func checkOutOwn(ctx context.Context, template, commit string) error {
	repo := "--repo=" + filepath.Join(template, "repo")
	found, err := exec.CommandContext(ctx, "ostree", repo, "ls", commit, rootConfig).CombinedOutput()
	if err != nil {
		if strings.Contains(string(found), "No such file") {
			return nil
		}
		return fmt.Errorf("look for %s: %w: %s", rootConfig, err, found)
	}
	return ostree(ctx, repo, "checkout", "--require-hardlinks", commit, filepath.Join(template, ownTree))
}

// ownOSTree runs the ostree of an image that is checked out at tree. It sees the sysroot at sysrootInTree, the kernel's
// files, and an image that it cannot change.
func ownOSTree(ctx context.Context, tree, sysroot string, args ...string) error {
	cmd := exec.CommandContext(ctx, "/usr/bin/ostree", args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: tree}
	done := make(chan error, 1)
	onOwnThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err != nil {
			done <- fmt.Errorf("make mounts of its own: %w", err)
			return
		}
		m := &mounter{root: tree}
		m.bind(tree, "")
		m.remountReadOnly("")
		m.bindAll(sysroot, sysrootInTree)
		m.bindAll("/proc", "proc")
		m.bindAll("/dev", "dev")
		m.mount("tmpfs", "run", "tmpfs", 0, "")
		m.mount("tmpfs", "tmp", "tmpfs", 0, "")
		if m.err == nil {
			m.err = denyFreeze()
		}
		if m.err != nil {
			done <- m.err
			return
		}
		done <- runQuietly(cmd)
	})
	return <-done
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
