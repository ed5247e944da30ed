package userspace

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/nodedisk"
)

// nextBooted is where ostree notes the deployment that a soft reboot takes. ostree-boot-complete.service gives it its
// lasting name after the switch.
const nextBooted = "run/ostree/nextroot-booted"

// Mend settles what a soft reboot leaves to the new userspace; it is called before anything is read from ostree. It
// disarms the watch that the soft reboot has set, and lets ostree know which deployment runs: after a second soft
// reboot in one hardware boot ostree-boot-complete.service may count as started already, and ostree calls the
// deployment before booted. While a soft reboot is prepared there is nothing to settle. What is left of one that
// somebody has withdrawn without ostree goes: ostree would call a deployment booted that is not.
func (n Node) Mend(ctx context.Context) error {
	left := filepath.Join(n.Root, nextBooted)
	_, err := os.Lstat(left)
	if err != nil && !program.WatchArmed(n.Root) {
		return nil
	}
	prepared, mountErr := program.NextRootMounted(n.Root)
	if mountErr != nil || prepared {
		return mountErr
	}
	if disarmErr := program.DisarmWatch(ctx, n.Root); disarmErr != nil || err != nil {
		return disarmErr
	}
	if taken, err := n.runs(left); err != nil {
		return err
	} else if !taken {
		return os.Remove(left)
	}
	// Where the service is just starting, a restart would kill it half way: the start waits for it.
	for _, verb := range []string{"start", "restart"} {
		if _, err := n.Run(ctx, "systemctl", verb, "ostree-boot-complete.service"); err != nil {
			return fmt.Errorf("let ostree know which deployment a soft reboot has taken: %w", err)
		}
		if _, err := os.Lstat(left); err != nil {
			return nil //nolint:nilerr // it is gone: done
		}
	}
	return &deploy.Fault{Class: deploy.ClassInternal, Op: "find out which deployment runs",
		Err:  errors.New("ostree-boot-complete.service left /" + nextBooted),
		Next: "look at its journal, or reboot the node's hardware: systemctl reboot"}
}

// runs tells whether "/" is the deployment that a note of ostree's is about. The note, a GVariant in the machine's byte
// order, has device and inode of the deployment's directory beside each other. Source: ostree, otcore.h,
// backing-root-device-inode.
func (n Node) runs(note string) (bool, error) {
	raw, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // ostree has it done meanwhile
	}
	if err != nil {
		return false, fmt.Errorf("read which deployment a soft reboot takes: %w", err)
	}
	etc, err := os.Stat(filepath.Join(n.Root, "etc"))
	if err != nil {
		return false, fmt.Errorf("find the deployment at /: %w", err)
	}
	trees, err := filepath.Glob(filepath.Join(n.Root, "ostree/deploy/*/deploy/*/etc"))
	if err != nil {
		return false, fmt.Errorf("find the deployment at /: %w", err)
	}
	for _, tree := range trees {
		var st syscall.Stat_t
		if is, err := os.Stat(tree); err != nil || !os.SameFile(is, etc) || syscall.Stat(filepath.Dir(tree), &st) != nil {
			continue // another one, or one that is being removed
		}
		key := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, st.Dev), st.Ino)
		return bytes.Contains(raw, key), nil
	}
	return true, nil // nobody can tell: ostree decides, and Check looks at it
}

// Switch is what a soft reboot is checked against afterwards.
type Switch struct {
	// Asked is when it was asked for, in clock ticks since the kernel started; 0: survivors are not looked for.
	Asked uint64 `json:"asked,omitempty"`
	// Left is the deployment that it leaves, by its ID; empty: its mounts are not looked for.
	Left string `json:"left,omitempty"`
}

// ticks of a second in /proc. Source: Linux, USER_HZ, 100 on every architecture that Go knows.
const ticks = 100

// begin is the Switch of a soft reboot that is asked for now and leaves a deployment.
func (n Node) begin(left *deploy.Deployment) (Switch, error) {
	raw, err := os.ReadFile(filepath.Join(n.Root, "proc/uptime"))
	if err != nil {
		return Switch{}, fmt.Errorf("read uptime: %w", err)
	}
	text, _, _ := strings.Cut(string(raw), " ")
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return Switch{}, fmt.Errorf("read uptime: %w", err)
	}
	s := Switch{Asked: uint64(seconds * ticks)}
	if left != nil {
		s.Left = left.ID
	}
	return s, nil
}

// Check says what of the userspace before a soft reboot is still there: a mount of the deployment that was left, a
// process, or that "/" is not the deployment that is called booted.
func (n Node) Check(s Switch, booted *deploy.Deployment) error {
	unlike, err := n.unlike(booted)
	if err == nil && unlike != "" {
		err = errors.New(unlike)
	}
	if err != nil {
		return err
	}
	mounts, err := n.mounts()
	if err != nil {
		return err
	}
	stateroot, dir, ok := strings.Cut(s.Left, "/")
	old := "/ostree/deploy/" + stateroot + "/deploy/" + dir
	for _, m := range mounts {
		if ok && (strings.HasSuffix(m.root, old) || strings.Contains(m.root, old+"/")) {
			return fmt.Errorf("%s is still mounted at %s", m.root, m.at)
		}
	}
	if s.Asked == 0 {
		return nil
	}
	return n.survivor(s.Asked)
}

// survivor names a process that was there before the soft reboot; PID 1 and the kernel's threads always are.
func (n Node) survivor(asked uint64) error {
	all, err := filepath.Glob(filepath.Join(n.Root, "proc/[0-9]*/stat"))
	if err != nil {
		return fmt.Errorf("look for survivors: %w", err)
	}
	for _, path := range all {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue //nolint:nilerr // it has ended
		}
		// What follows the name in brackets, which may hold brackets, is counted from the third field. Source:
		// proc_pid_stat(5).
		end := max(0, strings.LastIndex(string(raw), ") "))
		name, after := string(raw[:end]), strings.TrimPrefix(string(raw[end:]), ") ")
		const state, flags, start = 0, 9 - 3, 22 - 3
		fields := strings.Fields(after)
		if len(fields) <= start {
			continue
		}
		bits, _ := strconv.ParseUint(fields[flags], 10, 64)
		begun, err := strconv.ParseUint(fields[start], 10, 64)
		const kernelThread = 0x00200000 // PF_KTHREAD
		if err != nil || strings.HasPrefix(name, "1 (") || bits&kernelThread != 0 || fields[state] == "Z" || begun >= asked {
			continue
		}
		_, command, _ := strings.Cut(name, "(")
		return fmt.Errorf("process %s (%s) of the userspace before runs on", filepath.Base(filepath.Dir(path)), command)
	}
	return nil
}

// Watched is what to note of a soft reboot of which the hardware has rebooted, by its watch; empty: the watch had no
// part in it. Returned: the node runs the deployment before.
func (n Node) Watched() (why string, returned bool, err error) {
	fired, returned, err := program.WatchFired(n.Root)
	if err != nil || !fired {
		return "", false, err
	}
	why = "nothing in the new userspace has verified it"
	if returned {
		why += ", nor in the boot of the hardware after it"
	}
	return why, returned, nil
}

// failuresPath holds why soft reboots of this node failed, by the image's digest.
const failuresPath = "var/lib/dayone/soft-reboot-failures.json"

// maxFailures bounds the file: the images of a node's last failures.
const maxFailures = 16

type failure struct {
	Image string `json:"image"`
	Why   string `json:"why"`
}

// NoteFailure remembers that a soft reboot into an image failed: this node never tries it with that image again.
func (n Node) NoteFailure(image deploy.Image, why string) error {
	all, err := readFailures(n.Root)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(f failure) bool { return f.Image == image.Digest.String() })
	all = append(all, failure{Image: image.Digest.String(), Why: why})
	raw, err := json.Marshal(all[max(0, len(all)-maxFailures):])
	if err != nil {
		return fmt.Errorf("note the failure of a soft reboot: %w", err)
	}
	return nodedisk.WriteFile(filepath.Join(n.Root, failuresPath), append(raw, '\n'), 0o600)
}

// failedBefore is why a soft reboot into what is staged failed before; empty: it did not.
func failedBefore(root string, staged *deploy.Deployment) (string, error) {
	all, err := readFailures(root)
	if err != nil || staged == nil {
		return "", err
	}
	for _, f := range all {
		if f.Image == staged.Image.Digest.String() || f.Image == staged.ManifestDigest.String() {
			return f.Why, nil
		}
	}
	return "", nil
}

// readFailures reads the file; one that a power cut spoiled counts as none.
func readFailures(root string) ([]failure, error) {
	raw, err := os.ReadFile(filepath.Join(root, failuresPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the failures of soft reboots: %w", err)
	}
	var all []failure
	if json.Unmarshal(raw, &all) != nil {
		return nil, nil
	}
	return all, nil
}
