package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
)

// CheckStaged checks the staged tree, whatever the deployer, for what would fail only at shutdown, where no one sees it
// and the node boots what it had: no room for the kernel in /boot, and conflicts of the /etc merge; and for files that
// SELinux would keep from the node's services. What is staged is then withdrawn. Otherwise a reboot takes it, however
// soon it comes. Nothing staged is no error. Errors are Faults. With composefs bootc writes the kernel when it stages,
// and the staged tree is an image: there is nothing to look at.
func CheckStaged(ctx context.Context, root string, d deploy.Deployer) error {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil || s.Booted == nil || s.Staged.Composefs {
		return err
	}
	err = checkBoot(root, s.Booted, s.Staged)
	if err == nil {
		err = checkMerge(ctx, root, s.Staged)
	}
	if err == nil {
		err = checkLabels(root, s)
	}
	if err == nil {
		err = startFinalizer(ctx, root)
	}
	if back, ok := d.(deploy.Unstager); ok && err != nil {
		return errors.Join(err, back.Unstage(ctx))
	}
	return err
}

// startFinalizer starts the unit whose end at shutdown writes the staged deployment. ostree's path unit starts it, too,
// but a moment later: a reboot in that moment would boot what the node had.
func startFinalizer(ctx context.Context, root string) error {
	const unit = "ostree-finalize-staged.service"
	if _, err := os.Stat("/run/systemd/system"); root != "/" || err != nil {
		return nil // no systemd, or not this host's tree
	}
	if _, err := program.Run(ctx, "systemctl", "start", unit); err != nil {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "start " + unit, Err: err,
			Next: "look at systemctl status " + unit + "; without it a reboot boots what the node had"}
	}
	return nil
}

// TreeOf is the directory of a deployment below root. A staged deployment's is there already.
func TreeOf(d *deploy.Deployment, root string) (string, error) {
	if d == nil {
		return "", errors.New("there is no deployment")
	}
	stateroot, dir, ok := strings.Cut(d.ID, "/")
	if !ok {
		return "", fmt.Errorf("deployment %q is of an unknown form", d.ID)
	}
	return filepath.Join(root, "ostree/deploy", stateroot, "deploy", dir), nil
}

// checkBoot compares what of the staged tree's kernel is not in the booted one with the room in /boot.
func checkBoot(root string, booted, staged *deploy.Deployment) error {
	have, err := kernelSizes(root, booted)
	if err != nil {
		return err
	}
	want, err := kernelSizes(root, staged)
	if err != nil {
		return err
	}
	var need int64
	for _, file := range want {
		if !file.in(have) {
			need += file.Size()
		}
	}
	if need == 0 {
		return nil
	}
	return deploy.RequireSpace(filepath.Join(root, "boot"), need+deploy.BootSlack, "check /boot")
}

type kernelFile struct{ fs.FileInfo }

// in tells whether the file is one of list: equal content is one object of the repository, and so one file.
func (f kernelFile) in(list []kernelFile) bool {
	for _, other := range list {
		if os.SameFile(f.FileInfo, other.FileInfo) {
			return true
		}
	}
	return false
}

func kernelSizes(root string, d *deploy.Deployment) ([]kernelFile, error) {
	tree, err := TreeOf(d, root)
	if err != nil {
		return nil, fmt.Errorf("read kernels: %w", err)
	}
	var files []kernelFile
	for _, name := range []string{"vmlinuz", "initramfs.img"} {
		paths, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*", name))
		if err != nil {
			return nil, fmt.Errorf("read kernels: %w", err)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return nil, fmt.Errorf("read kernels: %w", err)
			}
			files = append(files, kernelFile{info})
		}
	}
	return files, nil
}

// checkMerge looks for what the /etc merge at shutdown would refuse. A host without the ostree program, which tells the
// local changes, is not checked.
func checkMerge(ctx context.Context, root string, staged *deploy.Deployment) error {
	changes, err := EtcChanges(ctx, root)
	if deploy.ClassOf(err) == deploy.ClassNotOSTree {
		return nil
	}
	if err != nil {
		return err
	}
	tree, err := TreeOf(staged, root)
	if err != nil {
		return fmt.Errorf("check /etc: %w", err)
	}
	return mergeFault(etcConflict(filepath.Join(root, "etc"), filepath.Join(tree, "usr/etc"), changes))
}

// Kernels lists the releases of the kernels in a deployment's tree below root, as they are on disk. A staged
// deployment's tree is there already.
func Kernels(root string, d *deploy.Deployment) ([]string, error) {
	tree, err := TreeOf(d, root)
	if err != nil {
		return nil, fmt.Errorf("list kernels: %w", err)
	}
	dir := filepath.Join(tree, "usr/lib/modules")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list kernels: %w", err)
	}
	var kernels []string
	for _, e := range entries {
		_, err := os.Stat(filepath.Join(dir, e.Name(), "vmlinuz"))
		if err == nil {
			kernels = append(kernels, e.Name())
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list kernels: %w", err)
		}
	}
	return kernels, nil
}
