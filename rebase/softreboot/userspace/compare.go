package userspace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// trees are two deployments, and the running system's /etc.
type trees struct{ booted, staged, etc string }

// part is what only a start of the kernel or of the initramfs brings, and where it is in a deployment: directories and
// files below it.
type part struct {
	name     string
	patterns []string
}

// parts are compared in their order. /etc is usr/etc in a deployment.
var parts = [...]part{ //nolint:gochecknoglobals // a constant in all but type
	{"the kernel or its initramfs", []string{"usr/lib/modules/*/vmlinuz", "usr/lib/modules/*/initramfs.img",
		"usr/lib/modules/*/devicetree", "usr/lib/modules/*/dtb/*", "usr/lib/modules/*/dtb/*/*"}},
	{"the image's kernel arguments", []string{"usr/lib/bootc/kargs.d/*"}},
	{"the SELinux policy", []string{"usr/etc/selinux/config", "usr/etc/selinux/*/policy/policy.*"}},
	{"FIPS", []string{"usr/etc/system-fips", "usr/etc/crypto-policies/config"}},
	{"the IMA policy", []string{"usr/etc/ima/*"}},
	{"sysctl settings", []string{"usr/lib/sysctl.d/*", "usr/etc/sysctl.d/*", "usr/etc/sysctl.conf"}},
	{"the modules to load", []string{"usr/lib/modules-load.d/*", "usr/etc/modules-load.d/*", "usr/etc/modules"}},
	{"module options", []string{"usr/lib/modprobe.d/*", "usr/etc/modprobe.d/*"}},
	{"udev rules", []string{"usr/lib/udev/rules.d/*", "usr/etc/udev/rules.d/*"}},
	{"fstab", []string{"usr/etc/fstab"}},
	{"crypttab", []string{"usr/etc/crypttab"}},
	{"prepare-root.conf", []string{"usr/lib/ostree/prepare-root.conf", "usr/etc/ostree/prepare-root.conf"}},
}

// differences names the parts that differ, and the kernel's modules.
func (t trees) differences() ([]string, error) {
	var out []string
	for _, p := range parts {
		differs, err := t.part(p)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", p.name, err)
		}
		if differs {
			out = append(out, p.name)
		}
	}
	// ostree reads the running system's to mount the next root, and the initramfs mounted this one by what was there then.
	const prepareRoot = "ostree/prepare-root.conf"
	same, err := equal(filepath.Join(t.booted, "usr/etc", prepareRoot), filepath.Join(t.etc, prepareRoot))
	if err != nil {
		return nil, fmt.Errorf("compare /etc/%s: %w", prepareRoot, err)
	}
	if !same {
		out = append(out, "a local /etc/"+prepareRoot)
	}
	changed, err := t.modules()
	if err != nil {
		return nil, fmt.Errorf("compare kernel modules: %w", err)
	}
	if changed != "" {
		out = append(out, "the kernel module "+changed)
	}
	return out, nil
}

func (t trees) part(p part) (bool, error) {
	names := map[string]bool{}
	for _, pattern := range p.patterns {
		for _, tree := range []string{t.booted, t.staged} {
			found, err := filepath.Glob(filepath.Join(tree, pattern))
			if err != nil {
				return false, err
			}
			for _, path := range found {
				name, err := filepath.Rel(tree, path)
				if err != nil {
					return false, err
				}
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		differs, err := t.file(name)
		if err != nil || differs {
			return differs, err
		}
	}
	return false, nil
}

// file compares a file of the deployments. One of /etc that is the node's own, because it is unlike the booted
// deployment's, stays in the merge: it does not change, whatever the staged deployment has. So it is with what Ignition
// wrote on the first boot.
func (t trees) file(name string) (bool, error) {
	same, err := equal(filepath.Join(t.booted, name), filepath.Join(t.staged, name))
	if same || err != nil {
		return false, err
	}
	own, isEtc := strings.CutPrefix(name, "usr/etc/")
	if !isEtc {
		return true, nil
	}
	return equal(filepath.Join(t.booted, name), filepath.Join(t.etc, own))
}

// modules names a module of the booted deployment's kernels that the staged one lacks or has otherwise: the running
// kernel may have loaded it, or load the other one into what it has. More modules do no harm.
func (t trees) modules() (string, error) {
	changed := ""
	root := filepath.Join(t.booted, "usr/lib/modules")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return nil
		}
		if err != nil || e.IsDir() || !strings.Contains(e.Name(), ".ko") {
			return err
		}
		name, err := filepath.Rel(t.booted, path)
		if err != nil {
			return err
		}
		same, err := equal(path, filepath.Join(t.staged, name))
		if err != nil || same {
			return err
		}
		changed = e.Name()
		return fs.SkipAll
	})
	return changed, err
}

// equal compares two files or links; two that are missing are equal. Equal content of one repository is one file.
func equal(a, b string) (bool, error) {
	infoA, errA := os.Lstat(a)
	infoB, errB := os.Lstat(b)
	goneA, goneB := missing(errA), missing(errB)
	switch {
	case goneA || goneB:
		return goneA && goneB, nil
	case errA != nil || errB != nil:
		return false, errors.Join(errA, errB)
	case os.SameFile(infoA, infoB):
		return true, nil
	case infoA.Mode() != infoB.Mode():
		return false, nil
	case infoA.Mode()&fs.ModeSymlink != 0:
		toA, errA := os.Readlink(a)
		toB, errB := os.Readlink(b)
		return toA == toB, errors.Join(errA, errB)
	case !infoA.Mode().IsRegular():
		return true, nil
	case infoA.Size() != infoB.Size():
		return false, nil
	}
	contentA, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	contentB, err := os.ReadFile(b)
	return bytes.Equal(contentA, contentB), err
}

// missing tells that a path is not there, or is below what is no directory.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
