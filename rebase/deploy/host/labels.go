package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/rebase/deploy"
)

// selinuxConfig says in an image whether its policy is enforced (selinux(8)); maxConfig bounds what is read of it.
const (
	selinuxConfig = "usr/etc/selinux/config"
	maxConfig     = 64 << 10
)

// checkLabels refuses a tree that enforces SELinux and has files without a label: the deployer ostree labels nothing,
// rpm-ostree and bootc label the files of layers by the image's policy. A node would boot such a tree, and its services
// may not read or run those files. /etc is left out: libostree labels it when it merges.
func checkLabels(root string, s deploy.Status) error {
	arguments := s.Staged.KernelArguments
	if arguments == nil {
		arguments = s.Booted.KernelArguments
	}
	if s.Kind != deploy.KindOSTree || slices.Contains(arguments, "selinux=0") ||
		slices.Contains(arguments, "enforcing=0") {
		return nil
	}
	tree, err := TreeOf(s.Staged, root)
	if err != nil {
		return fmt.Errorf("check SELinux labels: %w", err)
	}
	if enforces, err := enforcesSELinux(tree); err != nil || !enforces {
		return err
	}
	path, err := firstUnlabeled(filepath.Join(tree, "usr"))
	if err != nil || path == "" {
		return err
	}
	return &deploy.Fault{Class: deploy.ClassConfig, Op: "check SELinux labels",
		Err: fmt.Errorf("the image enforces SELinux, and /usr/%s has no label: the deployer ostree labels no file of an "+
			"image's layers", path),
		Next: "use a disk image with rpm-ostree or bootc, or set SELINUX=permissive in the image's /etc/selinux/config"}
}

// enforcesSELinux reads the first SELINUX= of the tree's configuration, as libselinux does.
func enforcesSELinux(tree string) (bool, error) {
	f, err := os.Open(filepath.Join(tree, selinuxConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the image's SELinux mode: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxConfig))
	for lines.Scan() {
		if mode, ok := strings.CutPrefix(lines.Text(), "SELINUX="); ok {
			return strings.HasPrefix(strings.ToLower(mode), "enforcing"), nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("read the image's SELinux mode: %w", err)
	}
	return false, nil
}

// firstUnlabeled is the first path below dir without a label of its own, "" if there is none.
func firstUnlabeled(dir string) (string, error) {
	found := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name == "etc" && d.IsDir() {
			return fs.SkipDir
		}
		label, err := labelOf(path)
		if err == nil && !labeled(label) {
			found = name
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read SELinux labels: %w", err)
	}
	return found, nil
}

// maxLabel is more than any policy's label takes.
const maxLabel = 4096

// labelOf is a file's label, "" without one.
func labelOf(path string) (string, error) {
	var buffer [maxLabel]byte
	n, err := unix.Lgetxattr(path, "security.selinux", buffer[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err != nil {
		return "", &fs.PathError{Op: "read label of", Path: path, Err: err}
	}
	return string(buffer[:n]), nil
}

// labeled is false for what a running SELinux tells of a file that has none.
func labeled(label string) bool { return label != "" && !strings.Contains(label, ":unlabeled_t") }
