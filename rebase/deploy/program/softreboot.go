package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
)

const (
	// nextRoot is where systemd finds the root file system of a soft reboot (systemd-soft-reboot.service(8)).
	nextRoot = "/run/nextroot"
	// skipAuto keeps `systemctl reboot` from becoming a soft reboot where one is prepared (systemctl(1)).
	skipAuto = "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1"
	// crioVersion is where CRI-O notes that it has seen this boot (crio.conf(5), version_file). /run outlives a soft
	// reboot: without the file CRI-O cleans up after the containers of the userspace before, as after a reboot.
	crioVersion = "/run/crio/version"
	// units holds units of this boot; it outlives a soft reboot. lasting holds those of the deployment.
	units, lasting = "/run/systemd/system", "/etc/systemd/system"
	// watchName is the timer that boots the hardware when nothing in the new userspace disarms it. Before it does, it puts
	// a second one in place: when nothing disarms that in the new boot, the node returns to the deployment before.
	watchName = "dayone-soft-reboot-watch"
	// second is where the units of the second watch wait.
	second = "/run/dayone/soft-reboot-watch"
	// watchMark says which of the two has fired since the last soft reboot.
	watchMark = "/var/lib/dayone/soft-reboot-watch"
	// watchSeconds is how long that takes: longer than a start of the services of a slow node.
	watchSeconds = 15 * 60
	// switchScript stops kubelet before the container runtimes, so that it starts nothing again, and asks for the soft
	// reboot. One that is not there or does not stop is left to the shutdown.
	switchScript = "systemctl stop kubelet.service; systemctl stop crio.service containerd.service; " +
		"exec systemctl soft-reboot"
)

// NextRootMounted tells whether a soft reboot is prepared: whether PID 1 has a mount at /run/nextroot.
func NextRootMounted(root string) (bool, error) {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/1/mountinfo"))
	if err != nil {
		return false, fmt.Errorf("look for a prepared soft reboot: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == nextRoot {
			return true, nil
		}
	}
	return false, nil
}

// CancelSoft withdraws a prepared soft reboot, whoever prepared it, and sees that its mount is gone.
func CancelSoft(ctx context.Context) error {
	mounted, err := NextRootMounted("/")
	if err != nil || !mounted {
		return err
	}
	_, resetErr := OSTree(ctx, "admin", "prepare-soft-reboot", "--reset")
	if mounted, err = NextRootMounted("/"); err != nil || !mounted {
		return err
	}
	// ostree withdraws only what it prepared itself, and this process may have a mount namespace of its own.
	_, umountErr := Run(ctx, "nsenter", "--target=1", "--mount", "umount", "--recursive", nextRoot)
	if mounted, err = NextRootMounted("/"); err != nil || !mounted {
		return err
	}
	return &deploy.Fault{Class: deploy.ClassInternal, Op: "withdraw the prepared soft reboot",
		Err:  errors.Join(fmt.Errorf("%s stays mounted", nextRoot), resetErr, umountErr),
		Next: "run umount -R " + nextRoot + " on the node"}
}

// SoftReboot asks systemd for a soft reboot, by name: where nothing is prepared it would start the same root again, so
// that is refused. PID 1 carries it out, because an agent that kubelet has started must not be what holds a stopped
// kubelet. A timer boots the hardware if nothing in the new userspace calls DisarmWatch in time; see WatchFired.
func SoftReboot(ctx context.Context) error {
	mounted, err := NextRootMounted("/")
	if err != nil {
		return err
	}
	if !mounted {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "ask for a soft reboot",
			Err: fmt.Errorf("nothing is mounted at %s any more", nextRoot), Next: "nothing: the node reboots its hardware"}
	}
	if err := armWatches("/"); err != nil {
		return err
	}
	if err := os.Remove(crioVersion); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("let CRI-O clean up: %w", err)
	}
	return ask(ctx, "systemd-run", "--no-block", "--collect", "--unit=dayone-soft-reboot", "--service-type=oneshot",
		"/bin/sh", "-c", switchScript)
}

// What is in watchMark: the watch has booted the hardware into the same image; nothing disarmed it in that boot either,
// and it has returned to the deployment before.
const firedHard, firedReturn = "hard", "returned"

// WatchFired tells whether the watch of the last soft reboot has booted the hardware, and whether it has returned to
// the deployment before.
func WatchFired(root string) (fired, returned bool, err error) {
	raw, err := os.ReadFile(filepath.Join(root, watchMark))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, false, fmt.Errorf("read what the watch of the soft reboot has done: %w", err)
	}
	said := strings.TrimSpace(string(raw))
	return said != "", said == firedReturn, nil
}

// armWatches writes the units of both watches. systemd reads them when it starts anew; the running one does not know
// them. What cannot be done before the hardware reboots is left out: the reboot counts.
func armWatches(root string) error {
	err := os.Remove(filepath.Join(root, watchMark))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the watch of the soft reboot before: %w", err)
	}
	mark := func(w string) string {
		return fmt.Sprintf("mkdir -p %s; echo %s >%s; sync", filepath.Dir(watchMark), w, watchMark)
	}
	first := mark(firedHard) + "; cp -R " + second + "/. " + lasting
	// The old deployment is the next one in ostree's order. The units belong to the new one, and go before it is left.
	again := "cd " + lasting + "; rm -f " + strings.Join(watchFiles(), " ") + "; ostree admin set-default 1 && { " +
		mark(firedReturn) + "; }"
	return errors.Join(armWatch(filepath.Join(root, units), first), armWatch(filepath.Join(root, second), again))
}

// watchFiles are a watch's files, below a directory of units. The timer is last.
func watchFiles() []string {
	return []string{"timers.target.wants/" + watchName + ".timer", watchName + ".service", watchName + ".timer"}
}

// armWatch writes the units of a watch that runs a script before it boots the hardware.
func armWatch(dir, script string) error {
	service := "[Unit]\nDescription=Reboot the hardware: nothing has verified the soft reboot\nDefaultDependencies=no\n" +
		"[Service]\nType=oneshot\nEnvironment=" + skipAuto + "\nExecStart=-/bin/sh -c '" + script + "'\n" +
		"ExecStart=systemctl --no-block reboot\n"
	timer := fmt.Sprintf("[Unit]\nDescription=Wait for the verification of the soft reboot\n[Timer]\nOnActiveSec=%d\n",
		watchSeconds)
	wants := filepath.Join(dir, "timers.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return fmt.Errorf("arm the watch of a soft reboot: %w", err)
	}
	for suffix, content := range map[string]string{".service": service, ".timer": timer} {
		if err := os.WriteFile(filepath.Join(dir, watchName+suffix), []byte(content), 0o644); err != nil {
			return fmt.Errorf("arm the watch of a soft reboot: %w", err)
		}
	}
	err := os.Symlink("../"+watchName+".timer", filepath.Join(wants, watchName+".timer"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("arm the watch of a soft reboot: %w", err)
	}
	return nil
}

// WatchArmed tells whether a watch is there that SoftReboot has armed, for this boot or for the one after it.
func WatchArmed(root string) bool {
	return slices.ContainsFunc([]string{units, lasting}, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(root, dir, watchName+".timer"))
		return err == nil
	})
}

// DisarmWatch ends the timer that SoftReboot left; none is no error.
func DisarmWatch(ctx context.Context, root string) error {
	if !WatchArmed(root) {
		return nil
	}
	// Source of the status: systemctl(1), exit status: there is no such unit, in a userspace that began before it.
	const notLoaded = 5
	out, err := exec.CommandContext(ctx, "systemctl", "stop", watchName+".timer").CombinedOutput()
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() != notLoaded) {
		return fmt.Errorf("disarm the watch of the soft reboot: %w: %s", err, strings.TrimSpace(string(out)))
	}
	var errs []error
	for _, dir := range []string{second, lasting, units} {
		for _, name := range watchFiles() { // the timer last: while it is there this is done again
			err := os.Remove(filepath.Join(root, dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
