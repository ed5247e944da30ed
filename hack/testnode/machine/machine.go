package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"dayone.dev/dayone/hack/testnode"
)

const (
	// qemu is the emulator; the package has no other form.
	qemu = "qemu-system-x86_64"
	// rootLabel and bootLabel are the file systems' labels, by which kernel and boot loader find them.
	rootLabel, bootLabel = "root", "boot"
	// defaultMemory in MiB; less than 1 GiB is tight for the initramfs.
	defaultMemory = 1536
)

// Options of a machine; the zero value works.
type Options struct {
	// Dir gets the disk image and sockets; default: beside the node's sysroot.
	Dir string
	// Ignition is the pointer config that the first boot's initramfs is given, as a cloud or an installer gives it.
	// Required.
	Ignition []byte
	// Memory in MiB; default 1536.
	Memory int
	// KVM uses the processor's virtualization. Not by default: where /dev/kvm is there, it need not work, above all in
	// virtual machines.
	KVM bool
}

// Machine is a virtual machine whose disk is a copy of a node's. Its network is QEMU's user network on the bootstrap
// host: it reaches what the bootstrap host reaches, and nobody reaches it.
type Machine struct {
	o       Options
	network *testnode.Network
	name    string
	console string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something below changes
	boots   int
	soft    int
	times   BootTimes // of the last boot
	control *control  // of the boot that runs; nil until it is ready
	off     bool
	err     error
	cancel  context.CancelFunc
	ended   chan struct{}
}

// Missing names what this machine lacks for virtual machines; nil: nothing.
func Missing() error {
	var missing []string
	for _, name := range []string{qemu, "mkfs.ext4", "mmdebstrap"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("virtual machines need %s; run hack/setup/setup.sh vm", strings.Join(missing, ", "))
	}
	return nil
}

// New makes a disk of the sysroot of a node that was never started, and whose deployment has KernelArguments. The node
// itself stays off; its console is the machine's.
func New(ctx context.Context, lab *testnode.Lab, node *testnode.Node, o Options) (*Machine, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	if o.Dir == "" {
		o.Dir = node.Sysroot + "-machine"
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make machine %s: %w", node.Name, err)
	}
	m := &Machine{o: o, network: lab.Network, name: node.Name, console: node.LogFile(), changed: make(chan struct{})}
	if err := m.makeDisk(ctx, node.Sysroot); err != nil {
		return nil, fmt.Errorf("make machine %s: %w", node.Name, err)
	}
	return m, os.WriteFile(m.path("pointer.ign"), o.Ignition, 0o600)
}

func (m *Machine) path(name string) string { return filepath.Join(m.o.Dir, name) }

// Start switches the machine on; it boots as often as it asks for until it powers off or ctx ends. See WaitBoot and
// Close.
func (m *Machine) Start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	m.update(func() { m.cancel, m.ended, m.off, m.err = cancel, ended, false, nil })
	go func() {
		defer close(ended)
		err := m.run(ctx)
		if ctx.Err() != nil {
			err = nil // somebody pulled the plug
		}
		m.update(func() { m.off, m.err, m.control = true, err, nil })
	}()
}

// Close pulls the plug and removes the machine's files.
func (m *Machine) Close() error {
	if m.cancel != nil {
		m.cancel()
		<-m.ended
	}
	return os.RemoveAll(m.o.Dir)
}

func (m *Machine) run(ctx context.Context) error {
	for {
		m.update(func() { m.boots++ })
		again, err := m.bootOnce(ctx)
		m.update(func() { m.control = nil })
		if err != nil || !again {
			return err
		}
	}
}

func (m *Machine) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

// Boots counts how often the machine has booted.
func (m *Machine) Boots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

// SoftReboots counts how often the machine took commands again without a boot.
func (m *Machine) SoftReboots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.soft
}

// WaitSoftReboot waits until the machine takes commands after soft reboot number count, counted from 1 over all boots,
// or a later one.
func (m *Machine) WaitSoftReboot(ctx context.Context, count int) error {
	return m.wait(ctx, fmt.Sprintf("soft reboot %d", count), func() (bool, error) {
		if m.off {
			return false, errors.Join(fmt.Errorf("it is off after %d soft reboots", m.soft), m.err)
		}
		return m.control != nil && m.soft >= count, nil
	})
}

// WaitBoot waits until boot number boot, counted from 1, or a later one takes commands.
func (m *Machine) WaitBoot(ctx context.Context, boot int) error {
	return m.wait(ctx, fmt.Sprintf("boot %d", boot), func() (bool, error) {
		if m.off {
			return false, errors.Join(fmt.Errorf("it is off after %d boots", m.boots), m.err)
		}
		return m.control != nil && m.boots >= boot, nil
	})
}

// WaitOff waits until the machine has powered itself off.
func (m *Machine) WaitOff(ctx context.Context) error {
	return m.wait(ctx, "power off", func() (bool, error) { return m.off, m.err })
}

func (m *Machine) wait(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		m.mu.Lock()
		ok, err := done()
		changed := m.changed
		m.mu.Unlock()
		if err != nil {
			return fmt.Errorf("wait for %s of %s: %w (see %s)", what, m.name, err, m.console)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of %s: %w (see %s)", what, m.name, ctx.Err(), m.console)
		case <-changed:
		}
	}
}

// Run runs a shell command as root in the machine and gives what it printed, standard error included, and its exit
// code. A machine that goes down under the command is an error.
func (m *Machine) Run(ctx context.Context, command string) (output string, status int, err error) {
	m.mu.Lock()
	c := m.control
	m.mu.Unlock()
	if c == nil {
		return "", -1, fmt.Errorf("run %q on %s: it takes no commands now", command, m.name)
	}
	output, status, err = c.run(ctx, command)
	if err != nil {
		err = fmt.Errorf("run %q on %s: %w", command, m.name, err)
	}
	return output, status, err
}

// Output runs a command that must succeed and gives what it printed, without the last newline.
func (m *Machine) Output(ctx context.Context, command string) (string, error) {
	out, status, err := m.Run(ctx, command)
	if err == nil && status != 0 {
		err = fmt.Errorf("run %q on %s: exit status %d: %s", command, m.name, status, strings.TrimSpace(out))
	}
	return strings.TrimSuffix(out, "\n"), err
}
