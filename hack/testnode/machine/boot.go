package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/testnode"
)

// firstBootArguments are what CoreOS's boot loader adds on a machine's first boot, with the network that Ignition
// needs.
const firstBootArguments = " ignition.firstboot ignition.platform.id=qemu rd.neednet=1 ip=dhcp"

// everyBootArguments: the console is a serial port; a disk without a journal to replay needs no check; what the
// initramfs says, Ignition's reasons above all, is on the console; and nobody is there for an emergency shell.
const everyBootArguments = " console=ttyS0 rootfstype=ext4 fsck.mode=skip systemd.show_status=false" +
	" systemd.journald.forward_to_console=1 rd.shell=0 rd.emergency=poweroff"

// makeDisk copies a sysroot into a file system image; no partitions, because the boot loader is this package.
func (m *Machine) makeDisk(ctx context.Context, sysroot string) error {
	f, err := os.Create(m.path("disk.img"))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(m.o.DiskSize), f.Close()); err != nil {
		return err
	}
	return quietly(exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-L", rootLabel, "-d", sysroot, "-E",
		"lazy_itable_init=1", f.Name()))
}

// bootEntry is what a boot loader does: it reads /boot from the disk and takes the newest entry.
func (m *Machine) bootEntry(ctx context.Context) (testnode.BootEntry, error) {
	dir := m.path("loader")
	if err := os.RemoveAll(dir); err != nil {
		return testnode.BootEntry{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return testnode.BootEntry{}, err
	}
	if err := quietly(exec.CommandContext(ctx, "debugfs", "-R", "rdump /boot "+dir, m.path("disk.img"))); err != nil {
		return testnode.BootEntry{}, err
	}
	return testnode.NewestBootEntry(dir)
}

// bootOnce runs one boot to its end. again says that the machine has asked for a reboot.
func (m *Machine) bootOnce(ctx context.Context, e testnode.BootEntry) (again bool, err error) {
	options := e.Options + everyBootArguments
	if m.Boots() == 1 && m.o.Ignition != nil {
		options += firstBootArguments
	}
	before, err := size(m.console)
	if err != nil {
		return false, err
	}
	socket := m.path("control")
	if err := os.RemoveAll(socket); err != nil {
		return false, err
	}
	boot := func(name string) string { return filepath.Join(m.path("loader"), "boot", name) }
	cmd := m.network.Command(ctx, append([]string{qemu}, m.arguments(boot(e.Linux), boot(e.Initrd), options,
		socket)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said

	// The kernel's death signal is bound to the thread that starts the child: this one lives as long as the child does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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

func (m *Machine) arguments(linux, initrd, options, socket string) []string {
	args := []string{"-machine", "q35", "-cpu", "max", "-smp", "2", "-m", fmt.Sprint(m.o.Memory), "-nodefaults",
		"-display", "none", "-no-reboot",
		"-kernel", linux, "-initrd", initrd, "-append", options,
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file=" + m.path("disk.img"), "-device",
		"virtio-blk-pci,drive=disk",
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-rng-pci",
		"-chardev", "file,id=console,append=on,path=" + m.console, "-serial", "chardev:console",
		"-chardev", "socket,id=control,server=on,wait=off,path=" + socket, "-serial", "chardev:control",
	}
	if m.o.Ignition != nil {
		args = append(args, "-fw_cfg", "name=opt/com.coreos/config,file="+m.path("pointer.ign"))
	}
	if m.o.KVM {
		return append(args, "-accel", "kvm")
	}
	return append(args, "-accel", "tcg,thread=multi,tb-size=512")
}

func size(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
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
