package testnode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/statefile"
)

// forbidden are the capabilities that reach beyond namespaces: the clock, modules and raw ports are the whole
// machine's.
//
//nolint:gochecknoglobals // a constant in all but type
var forbidden = []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_WAKE_ALARM,
	unix.CAP_SYSLOG}

// boot is a node's PID 1. It plays the boot loader's and the initramfs' part and then becomes the deployment's
// /sbin/init.
func boot(dir string) error {
	var c config
	if err := statefile.Read(filepath.Join(dir, configFile), &c); err != nil {
		return err
	}
	options, err := os.ReadFile(filepath.Join(dir, cmdlineFile))
	if err != nil {
		return err
	}
	if err := isolate(c); err != nil {
		return err
	}
	deployment, err := bootEntry{Options: string(options)}.deployment(c.Sysroot)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "initramfs")
	if err := initramfs(root, deployment, dir, c); err != nil {
		return fmt.Errorf("set up initramfs: %w", err)
	}
	m, systemd := &mounter{root: root}, isSystemd(deployment)
	if canSoftReboot(deployment) {
		m.shareMounts()
	} else {
		m.dirs("run/ostree") // newer releases of ostree-prepare-root insist on making that themselves
	}
	if !systemd {
		// Without systemd nobody but prepare-root mounts /var.
		m.do("create", "run/ostree/initramfs-mount-var", touch)
	}
	if m.err != nil {
		return m.err
	}
	prepare := exec.Command("/usr/lib/ostree/ostree-prepare-root", "/sysroot")
	prepare.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	prepare.Dir = "/"
	if out, err := prepare.CombinedOutput(); err != nil {
		return fmt.Errorf("run ostree-prepare-root: %w: %s", err, out)
	}
	if err := switchRoot(root); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	return becomeInit(systemd, strings.Fields(string(options)))
}

// isolate enters the node's cgroup and takes the node's name. Mount, pid, uts and ipc namespaces are new already.
func isolate(c config) error {
	if err := os.WriteFile(filepath.Join(c.Cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup: %w", err)
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// initramfs mounts what dracut's would have: the deployment's own programs, the kernel's file systems, a few devices.
func initramfs(root, deployment, dir string, c config) error {
	m := &mounter{root: root}
	m.must(os.MkdirAll(root, 0o755))
	m.mount("initramfs", "", "tmpfs", 0, "mode=755")
	m.dirs("sysroot", "proc", "sys", "dev", "run", "usr", "etc")
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		m.symlink("usr/"+l, l)
	}
	m.bind(filepath.Join(deployment, "usr"), "usr")
	m.bindAll(c.Sysroot, "sysroot")
	m.mount("proc", "proc", "proc", 0, "")
	// The machine's settings are not the node's to change; its network's are.
	m.bind(filepath.Join(root, "proc/sys/net"), "proc/sys/net")
	m.bindAll(filepath.Join(root, "proc/sys"), "proc/sys")
	m.remountReadOnly("proc/sys")
	m.mask("proc/sysrq-trigger")
	m.mount("sysfs", "sys", "sysfs", unix.MS_RDONLY, "")
	m.mount("cgroup2", "sys/fs/cgroup", "cgroup2", 0, "")
	m.mount("tmpfs", "run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
	m.dirs("run/host")
	m.bindFile(filepath.Join(dir, notifyFile), "run/host/notify")
	m.bindFile(filepath.Join(dir, cmdlineFile), "run/host/cmdline")
	m.bind(filepath.Join(root, "run/host/cmdline"), "proc/cmdline")
	// Every boot has its id, though the kernel stays: the journal and others tell boots apart by it.
	m.must(os.WriteFile(filepath.Join(root, "run/host/boot_id"), []byte(uuid.NewString()+"\n"), 0o444))
	m.bind(filepath.Join(root, "run/host/boot_id"), "proc/sys/kernel/random/boot_id")
	m.devices(c)
	return m.err
}

func (m *mounter) devices(c config) {
	m.mount("tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=755")
	for _, d := range append([]string{"null", "zero", "full", "random", "urandom", "tty"}, c.Devices...) {
		m.bindFile("/dev/"+d, "dev/"+d)
	}
	m.bindFile(c.TTY, "dev/console")
	m.dirs("dev/pts", "dev/shm")
	m.mount("tmpfs", "dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	m.mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
	m.symlink("pts/ptmx", "dev/ptmx")
	m.symlink("/proc/self/fd", "dev/fd")
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		m.symlink(fmt.Sprintf("/proc/self/fd/%d", i), "dev/"+name)
	}
}

// switchRoot moves the kernel's file systems below the root that prepare-root has mounted and makes that the root.
func switchRoot(root string) error {
	for _, d := range []string{"proc", "sys", "dev", "run"} {
		if err := unix.Mount(filepath.Join(root, d), filepath.Join(root, "sysroot", d), "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move /%s: %w", d, err)
		}
	}
	if err := unix.Chdir(filepath.Join(root, "sysroot")); err != nil {
		return err
	}
	if err := os.Mkdir("run/.old", 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "run/.old"); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/run/.old", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Remove("/run/.old")
}

// shareMounts does at each start of the userspace what systemd does on machines and leaves undone in containers:
// services see what is mounted later. Without it logind misses the root that a soft reboot is prepared with. /run, and
// so this unit, outlives soft reboots.
func (m *mounter) shareMounts() {
	const unit, wants = "run/systemd/system/dayone-share-mounts.service", "run/systemd/system/sysinit.target.wants"
	m.dirs(wants)
	m.do("write", unit, func(p string) error {
		return os.WriteFile(p, []byte(`[Unit]
Description=Share mounts with services
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
ExecStart=/bin/mount --make-rshared /
`), 0o644)
	})
	m.symlink("../dayone-share-mounts.service", wants+"/dayone-share-mounts.service")
}

// becomeInit executes /sbin/init. In a container systemd reads options from its own arguments, not from /proc/cmdline.
func becomeInit(systemd bool, options []string) error {
	for _, c := range forbidden {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := denyFreeze(); err != nil {
		return err
	}
	argv := []string{"/sbin/init"}
	if systemd {
		argv = append(argv, options...)
		argv = append(argv, "systemd.mask=console-getty.service", "systemd.mask=systemd-firstboot.service",
			"systemd.show_status=no")
	}
	env := []string{"container=dayone-testnode", "PATH=/usr/sbin:/usr/bin", "TERM=dumb", "NOTIFY_SOCKET=/run/host/notify"}
	return fmt.Errorf("execute /sbin/init: %w", unix.Exec(argv[0], argv, env))
}

// isSystemd says whether a deployment's init is systemd (a link to it) and not a program of its own.
func isSystemd(deployment string) bool {
	_, err := os.Readlink(filepath.Join(deployment, "usr/sbin/init"))
	return err == nil
}

// canSoftReboot says whether a deployment's systemd knows soft reboots.
func canSoftReboot(deployment string) bool {
	_, err := os.Stat(filepath.Join(deployment, "usr/lib/systemd/system/soft-reboot.target"))
	return err == nil
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
