package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/softreboot"
)

// Node is the node that is looked at. Run is required.
type Node struct {
	// Root is its "/".
	Root string
	// Run runs its programs.
	Run program.Runner
}

// Facts reads what is known of the node; what is staged is compared where something is. Changes name what the caller
// knows to change and only a start of the kernel brings: the kernel arguments of a staged deployment cannot be read.
func (n Node) Facts(ctx context.Context, policy softreboot.Policy, s deploy.Status,
	changes []string) (f softreboot.Facts, err error) {
	if f = n.system(ctx, policy); !f.Userspace().Soft {
		return f, nil // nothing else counts
	}
	f.Deployer = s.Kind
	if f.Native = s.Booted == nil || s.Booted.Composefs; f.Native {
		return f, nil
	}
	f.OSTree = n.version(ctx, "ostree", "--version")
	if s.Kind == deploy.KindBootc {
		f.Bootc = n.version(ctx, "bootc", "--version")
	}
	if f.Composefs, err = n.composefs(); err != nil {
		return f, err
	}
	if f.Unlike, err = n.unlike(s.Booted); err != nil {
		return f, err
	}
	if f.Overlay, err = n.overlay(); err != nil {
		return f, err
	}
	if f.SoftReboots, err = n.count(ctx); err != nil {
		return f, err
	}
	if f.Failed, err = failedBefore(n.Root, s.Staged); err != nil {
		return f, err
	}
	f.Differences = changes
	return n.staged(f, s)
}

// system reads what Userspace decides by.
func (n Node) system(ctx context.Context, policy softreboot.Policy) softreboot.Facts {
	f := softreboot.Facts{Policy: policy}
	if policy == softreboot.Hard {
		return f
	}
	f.Systemd, f.BootedTarget = n.version(ctx, "systemctl", "--version"), n.runningTarget()
	return f
}

// staged compares the staged deployment with the booted one.
func (n Node) staged(f softreboot.Facts, s deploy.Status) (softreboot.Facts, error) {
	if f.Staged = s.Staged != nil; !f.Staged {
		return f, nil
	}
	_, err := os.Stat(filepath.Join(n.Root, "run/ostree/staged-deployment-locked"))
	if f.Locked = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("look for a lock: %w", err)
	}
	booted, err := host.TreeOf(s.Booted, n.Root)
	if err != nil {
		return f, fmt.Errorf("compare deployments: %w", err)
	}
	staged, err := host.TreeOf(s.Staged, n.Root)
	if err != nil {
		return f, fmt.Errorf("compare deployments: %w", err)
	}
	f.StagedTarget = target(staged, "usr/etc/systemd/system")
	different, err := trees{booted: booted, staged: staged, etc: filepath.Join(n.Root, "etc")}.differences()
	for _, name := range different {
		if !slices.Contains(f.Differences, name) {
			f.Differences = append(slices.Clip(f.Differences), name)
		}
	}
	return f, err
}

// version is the first number of a program's answer; empty: it does not answer.
func (n Node) version(ctx context.Context, name string, args ...string) string {
	out, err := n.Run(ctx, name, args...)
	if err != nil {
		return ""
	}
	for _, word := range strings.Fields(string(out)) {
		if word = strings.Trim(word, `'"(),v`); word != "" && word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return ""
}

// count asks systemd how many soft reboots there were in this hardware boot.
func (n Node) count(ctx context.Context) (int, error) {
	out, err := n.Run(ctx, "systemctl", "show", "--value", "--property=SoftRebootsCount")
	text := strings.TrimSpace(string(out))
	if err != nil || text == "" { // of a systemd that does not count
		return 0, err
	}
	count, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read SoftRebootsCount: %w", err)
	}
	return count, nil
}

// runningTarget is the state of soft-reboot.target in the running system.
func (n Node) runningTarget() softreboot.TargetState {
	return target(n.Root, "etc/systemd/system", "run/systemd/system")
}

// target looks for soft-reboot.target below a tree, and for what masks it (systemd.unit(5): a link to /dev/null or an
// empty file).
func target(tree string, above ...string) softreboot.TargetState {
	const name = "soft-reboot.target"
	for _, dir := range above {
		path := filepath.Join(tree, dir, name)
		if to, err := os.Readlink(path); err == nil && to == "/dev/null" {
			return softreboot.TargetMasked
		}
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return softreboot.TargetMasked
		}
	}
	if _, err := os.Lstat(filepath.Join(tree, "usr/lib/systemd/system", name)); err != nil {
		return softreboot.TargetMissing
	}
	return softreboot.TargetPresent
}

// composefs tells whether "/" is composefs: the kernel shows its overlay.
func (n Node) composefs() (bool, error) {
	mounts, err := n.mounts()
	if err != nil {
		return false, err
	}
	found := false
	for _, m := range mounts {
		if m.at == "/" { // of mounts on top of each other the last one is seen
			found = m.kind == "overlay" || m.kind == "erofs"
		}
	}
	return found, nil
}

// unlike compares "/" itself with the deployment that is called booted. After a second soft reboot in one hardware boot
// ostree may name the one before; a merge of /etc would then take the wrong side. With composefs "/" is no directory of
// the sysroot, but /etc is the deployment's.
func (n Node) unlike(booted *deploy.Deployment) (string, error) {
	tree, err := host.TreeOf(booted, n.Root)
	if err != nil {
		return "", fmt.Errorf("compare / with its deployment: %w", err)
	}
	for _, pair := range [][2]string{{n.Root, tree}, {filepath.Join(n.Root, "etc"), filepath.Join(tree, "etc")}} {
		is, err := os.Stat(pair[0])
		if err != nil {
			return "", fmt.Errorf("compare / with its deployment: %w", err)
		}
		if said, err := os.Stat(pair[1]); err == nil && os.SameFile(is, said) {
			return "", nil
		}
	}
	return fmt.Sprintf("/ is not the deployment %s that is called booted", booted.ID), nil
}

// overlay tells whether a boot entry of ostree's has a second initramfs.
func (n Node) overlay() (bool, error) {
	files, err := filepath.Glob(filepath.Join(n.Root, "boot/loader/entries/ostree-*.conf"))
	if err != nil {
		return false, fmt.Errorf("list boot entries: %w", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a deployment is being written
		}
		if err != nil {
			return false, fmt.Errorf("read boot entry: %w", err)
		}
		count := 0
		for line := range strings.Lines(string(raw)) {
			if key, value, _ := strings.Cut(line, " "); key == "initrd" {
				count += len(strings.Fields(value))
			}
		}
		if count > 1 {
			return true, nil
		}
	}
	return false, nil
}

// mount is a line of mountinfo: the part of its file system that is mounted, where, and the file system's type.
type mount struct{ root, at, kind string }

// mounts reads those of PID 1. Source of the fields: proc_pid_mountinfo(5).
func (n Node) mounts() ([]mount, error) {
	raw, err := os.ReadFile(filepath.Join(n.Root, "proc/1/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var out []mount
	for line := range strings.Lines(string(raw)) {
		place, rest, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(place), strings.Fields(rest)
		if len(fields) > 4 && len(kind) > 0 {
			out = append(out, mount{root: fields[3], at: fields[4], kind: kind[0]})
		}
	}
	return out, nil
}
