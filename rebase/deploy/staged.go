package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CheckStaged looks into the staged tree, whatever the deployer, for what would fail only at shutdown, where nobody
// sees it and the node boots what it had: no room for the kernel in /boot, and conflicts of the /etc merge. What is
// staged is then taken back. Nothing staged is no error. Errors are Faults.
func CheckStaged(ctx context.Context, root string, d Deployer) error {
	changes := make(chan localChanges, 1) // found while the host is asked for its deployments
	go func() {
		diff, err := runOSTree(ctx, "admin", "config-diff", "--sysroot="+root)
		changes <- localChanges{diff, err}
	}()
	s, err := d.Status(ctx)
	local := <-changes
	if err != nil || s.Staged == nil || s.Booted == nil {
		return err
	}
	err = checkBoot(root, s.Booted, s.Staged)
	if err == nil {
		err = checkMerge(root, s.Staged, local)
	}
	if back, ok := d.(Unstager); ok && err != nil {
		return errors.Join(err, back.Unstage(ctx))
	}
	return err
}

// tree is the directory of a deployment below root. A staged deployment's is there already.
func (d *Deployment) tree(root string) (string, error) {
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
func checkBoot(root string, booted, staged *Deployment) error {
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
	return requireSpace(filepath.Join(root, "boot"), need+bootSlack, "check /boot")
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

func kernelSizes(root string, d *Deployment) ([]kernelFile, error) {
	tree, err := d.tree(root)
	if err != nil {
		return nil, fmt.Errorf("look at kernels: %w", err)
	}
	var files []kernelFile
	for _, name := range []string{"vmlinuz", "initramfs.img"} {
		paths, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*", name))
		if err != nil {
			return nil, fmt.Errorf("look at kernels: %w", err)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return nil, fmt.Errorf("look at kernels: %w", err)
			}
			files = append(files, kernelFile{info})
		}
	}
	return files, nil
}

// localChanges are what ostree says of /etc.
type localChanges struct {
	diff string
	err  error
}

// checkMerge looks for what the /etc merge at shutdown would refuse. A host without the ostree program, which tells the
// local changes, is not checked.
func checkMerge(root string, staged *Deployment, local localChanges) error {
	if ClassOf(local.err) == ClassNotOSTree {
		return nil
	}
	if local.err != nil {
		return local.err
	}
	tree, err := staged.tree(root)
	if err != nil {
		return fmt.Errorf("check /etc: %w", err)
	}
	return mergeFault(etcConflict(filepath.Join(root, "etc"), filepath.Join(tree, "usr/etc"), parseEtcChanges(local.diff)))
}

// Kernels lists the releases of the kernels in a deployment's tree below root, as they are on disk. A staged
// deployment's tree is there already.
func Kernels(root string, d *Deployment) ([]string, error) {
	tree, err := d.tree(root)
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
