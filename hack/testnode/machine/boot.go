package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/baseimage"
)

// KernelArguments are those of the first deployment of a machine's disk. The console is a serial port; a disk without
// a journal to replay needs no check; what the initramfs says, Ignition's reasons above all, is on the console; and
// nobody is there for an emergency shell. The boot loader replaces the last one.
func KernelArguments() []string {
	return []string{"root=LABEL=" + rootLabel, "rw", "console=ttyS0", "rootfstype=ext4", "fsck.mode=skip",
		"systemd.show_status=false", "systemd.journald.forward_to_console=1", "rd.shell=0", "rd.emergency=poweroff",
		"$ignition_firstboot"}
}

// makeDisk takes a disk with a boot loader and copies a sysroot into its file systems for /boot and for the root, which
// mounts the other one as an installer would have it.
func (m *Machine) makeDisk(ctx context.Context, sysroot string) error {
	empty, err := baseimage.BootDisk(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{baseimage.DiskFile, baseimage.FirmwareFile, baseimage.FirmwareVariablesFile} {
		err := quietly(exec.CommandContext(ctx, "cp", "--sparse=always", filepath.Join(empty, name), m.path(name)))
		if err != nil {
			return err
		}
	}
	boot, in := m.path(bootLabel), filepath.Join(sysroot, "boot")
	if err := errors.Join(mountBoot(sysroot), os.Rename(in, boot), os.Mkdir(in, 0o755)); err != nil {
		return err
	}
	return errors.Join(
		m.makeFileSystem(ctx, bootLabel, boot, baseimage.DiskBootOffset, baseimage.DiskBootSize),
		m.makeFileSystem(ctx, rootLabel, sysroot, baseimage.DiskRootOffset, baseimage.DiskRootSize))
}

// mountBoot writes into the first deployment that /boot is a file system of its own.
func mountBoot(sysroot string) error {
	etc, err := filepath.Glob(filepath.Join(sysroot, "ostree/deploy/*/deploy/*.0/etc"))
	if err != nil || len(etc) != 1 {
		return fmt.Errorf("find the deployment in %s: %d of them (%w)", sysroot, len(etc), err)
	}
	return os.WriteFile(filepath.Join(etc[0], "fstab"), []byte("LABEL="+bootLabel+" /boot ext4 defaults 0 0\n"), 0o644)
}

// makeFileSystem fills a partition of the disk with a directory.
func (m *Machine) makeFileSystem(ctx context.Context, label, dir string, offset, size int64) error {
	return quietly(exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-L", label, "-d", dir, "-E",
		fmt.Sprintf("nodiscard,lazy_itable_init=1,offset=%d", offset), m.path(baseimage.DiskFile),
		fmt.Sprintf("%dk", size>>10)))
}

// bootOnce runs one boot to its end. again says that the machine has asked for a reboot.
func (m *Machine) bootOnce(ctx context.Context) (again bool, err error) {
	log, err := os.OpenFile(m.console, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	socket := m.path("control")
	if err := os.RemoveAll(socket); err != nil {
		return false, err
	}
	cmd := m.network.Command(ctx, append([]string{qemu}, m.arguments(socket)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &console{log: log, saw: m.saw}, &said

	// The kernel's death signal is bound to the thread that starts the child: this one lives as long as the child does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m.update(func() { m.times = BootTimes{On: time.Now()} })
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start %s: %w", qemu, err)
	}
	listening, stop := context.WithCancel(ctx)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		m.listen(listening, socket)
	}()
	err = cmd.Wait()
	stop()
	<-heard
	if err != nil {
		return false, fmt.Errorf("run %s: %w: %s", qemu, err, strings.TrimSpace(said.String()))
	}
	text, err := from(m.console, before)
	if err != nil {
		return false, err
	}
	switch { // the kernel's last words
	case strings.Contains(text, "reboot: Restarting system"):
		return true, nil
	case strings.Contains(text, "reboot: Power down"):
		return false, nil
	}
	return false, fmt.Errorf("boot %d ended without a reboot or power off", m.Boots())
}

// saw notes the time of the first such words.
func (m *Machine) saw(words string) {
	m.update(func() {
		switch {
		case words == loaderWords && m.times.Loader.IsZero():
			m.times.Loader = time.Now()
		case words == kernelWords && m.times.Kernel.IsZero():
			m.times.Kernel = time.Now()
		}
	})
}

// LastBoot gives the times of the last boot's parts.
func (m *Machine) LastBoot() BootTimes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.times
}

func (m *Machine) arguments(socket string) []string {
	args := []string{"-machine", "q35", "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(m.o.Memory), "-nodefaults",
		"-display", "none", "-no-reboot",
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + m.path(baseimage.FirmwareFile),
		"-drive", "if=pflash,unit=1,format=raw,file=" + m.path(baseimage.FirmwareVariablesFile),
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + m.path(baseimage.DiskFile), "-device",
		"virtio-blk-pci,drive=disk,bootindex=1",
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-rng-pci",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", "socket,id=control,server=on,wait=off,path=" + socket, "-serial", "chardev:control",
		"-fw_cfg", "name=opt/com.coreos/config,file=" + m.path("pointer.ign"),
	}
	if m.o.KVM {
		return append(args, "-accel", "kvm")
	}
	return append(args, "-accel", "tcg,thread=multi,tb-size=512")
}

func from(path string, offset int64) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return string(raw[min(offset, int64(len(raw))):]), nil
}

func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
