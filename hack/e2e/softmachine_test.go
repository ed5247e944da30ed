package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/testnode/machine"
	"dayone.dev/dayone/rebase/firstboot"
)

// TestSoftRebootInAVirtualMachine takes a machine with firmware, boot loader and kernel of its own through Day 1 with
// one boot of its hardware, and compares what both kinds of reboot take.
func TestSoftRebootInAVirtualMachine(t *testing.T) {
	onlyAsked(t)
	r := reboots(t)
	t.Logf("soft %.1f s, hard %.1f s: %.2f", r.soft.total.Seconds(), r.hard.total.Seconds(),
		r.soft.total.Seconds()/r.hard.total.Seconds())
	t.Logf("hard: %s", r.hard)
	t.Logf("soft: %s", r.soft)
	assert.Less(t, r.soft.total, r.hard.total)
}

// BenchmarkRebootInAVirtualMachine is for the figures' table.
func BenchmarkRebootInAVirtualMachine(b *testing.B) {
	for range b.N {
		r := reboots(b)
		b.ReportMetric(r.soft.total.Seconds(), "soft-s")
		b.ReportMetric(r.hard.total.Seconds(), "hard-s")
		b.ReportMetric((r.hard.firmware + r.hard.loader + r.hard.kernel).Seconds(), "hardware-s")
	}
}

// figures are of one machine.
type figures struct{ soft, hard parts }

// parts are of one reboot. total is from the order until the agent names the image as the booted one and the system is
// up. A soft reboot has no firmware, boot loader and kernel.
type parts struct {
	total                    time.Duration
	prepare                  time.Duration // of a soft one: ostree's part
	stop, finalize           time.Duration // the services; of which ostree finalizes what is staged
	firmware, loader, kernel time.Duration // kernel: and its initramfs
	start                    time.Duration // systemd and the services
	verify                   time.Duration // the agent's answer
}

func (p parts) String() string {
	return fmt.Sprintf("prepare %.1f s, stop services %.1f s (of which ostree's finalizing %.1f s), firmware %.1f s, "+
		"boot loader %.1f s, kernel and initramfs %.1f s, start services %.1f s, verify %.1f s", p.prepare.Seconds(),
		p.stop.Seconds(), p.finalize.Seconds(), p.firmware.Seconds(), p.loader.Seconds(), p.kernel.Seconds(),
		p.start.Seconds(), p.verify.Seconds())
}

// reboots takes a master to its image by the soft reboot of its first boot, then to a second image by a hard and to a
// third one by a soft reboot.
func reboots(t testing.TB) (f figures) {
	t.Helper()
	m, ctx := startVM(t, baseimage.ForkyMachine)
	require.NoError(t, m.WaitBoot(ctx, 1))
	m.took("boot 1: firmware, boot loader, kernel, initramfs with Ignition, systemd")
	require.NoError(t, m.WaitSoftReboot(ctx, 1))
	m.took("pull, stage, soft reboot")
	first := m.doneWith(ctx)
	record := m.record(ctx)
	assert.Equal(t, "1 hardware boot, 1 soft reboot", record.Counts(), record.Hard)
	assert.Equal(t, 1, m.Boots())

	images := []string{first, m.pushLater(first)}
	m.output(ctx, firstboot.DaemonPath+" stage "+images[1])
	m.took("stage")
	f.hard = m.reboot(ctx, "true", "systemctl reboot", images[1], func() error { return m.WaitBoot(ctx, 2) })
	m.took("hard reboot, verified")
	arguments := m.output(ctx, "test -d /sys/firmware/efi && cat /proc/cmdline")
	assert.Contains(t, arguments, "BOOT_IMAGE=/ostree/", "the boot loader read the entry that ostree wrote")
	assert.NotContains(t, arguments, "ignition", "the first boot was before")
	id := m.output(ctx, "cat /proc/sys/kernel/random/boot_id")

	images = append(images, m.pushLater(images[1]))
	m.output(ctx, firstboot.DaemonPath+" stage "+images[2])
	m.took("stage")
	f.soft = m.reboot(ctx, "ostree admin prepare-soft-reboot 0", "systemctl soft-reboot", images[2],
		func() error { return m.WaitSoftReboot(ctx, 2) })
	m.took("soft reboot, verified")
	assert.Equal(t, id, m.output(ctx, "cat /proc/sys/kernel/random/boot_id"), "the hardware ran on")
	assert.Equal(t, "SoftRebootsCount=1", m.output(ctx, "systemctl show --property=SoftRebootsCount"), "in this boot")
	assert.Equal(t, 2, m.Boots())
	return f
}

// reboot prepares, gives the order and waits until the image runs.
func (m *vm) reboot(ctx context.Context, prepare, order, image string, wait func() error) (p parts) {
	t := m.t
	t.Helper()
	boots, begin := m.Boots(), time.Now()
	m.output(ctx, prepare)
	p.prepare = time.Since(begin)
	said, _, err := m.Run(ctx, order+" && sleep 600")
	require.Error(t, err, "its userspace goes down: %s", said)
	require.NoError(t, wait())
	// After a soft reboot ostree names the deployment before, until ostree-boot-complete.service has run.
	assert.Equal(t, "running", m.output(ctx, "systemctl is-system-running --wait || systemctl --failed"))
	up := time.Now()
	require.Equal(t, image, m.status(ctx).Booted.Image.String())
	p.total, p.verify = time.Since(begin), time.Since(up)
	started, boot := m.sinceStart(ctx, "Userspace"), "0"
	p.start = m.sinceStart(ctx, "Finish") - started
	if m.Boots() > boots {
		b := m.LastBoot()
		boot, p.firmware, p.loader, p.kernel = "-1", b.Loader.Sub(b.On), b.Kernel.Sub(b.Loader), started
	}
	text := m.output(ctx, "journalctl --quiet --output=short-monotonic --boot="+boot)
	p.finalize = lastTime(t, text, "Stopped ostree-finalize-staged.service") -
		lastTime(t, text, "Stopping ostree-finalize-staged.service")
	p.stop = p.total - p.prepare - p.firmware - p.loader - p.kernel - p.start - p.verify
	return p
}

// lastTime is when a journal has some words for the last time, since the start of the kernel.
func lastTime(t testing.TB, journal, words string) time.Duration {
	t.Helper()
	at := strings.LastIndex(journal, words)
	require.GreaterOrEqual(t, at, 0, "the journal has %q", words)
	line := journal[strings.LastIndex(journal[:at], "\n")+1 : at]
	stamp, _, found := strings.Cut(strings.TrimPrefix(line, "["), "]")
	require.True(t, found, line)
	d, err := time.ParseDuration(strings.TrimSpace(stamp) + "s")
	require.NoError(t, err)
	return d
}

// sinceStart is one of systemd's timestamps, since the start of the kernel.
func (m *vm) sinceStart(ctx context.Context, name string) time.Duration {
	m.t.Helper()
	d, err := time.ParseDuration(m.output(ctx, "systemctl show --value --property="+name+"TimestampMonotonic") + "us")
	require.NoError(m.t, err)
	return d
}

// onlyAsked skips what takes minutes, unless somebody asked for it.
func onlyAsked(t *testing.T) {
	t.Helper()
	if os.Getenv(machineEnv) == "" {
		t.Skip("takes minutes: make test-vm runs it")
	}
}

// startVM starts a master with a base image of that kind; its packages may take as long as the boots, the first time.
func startVM(t testing.TB, kind baseimage.Kind) (*vm, context.Context) {
	t.Helper()
	o := options(t)
	require.NoError(t, machine.Missing())
	o.Masters, o.KernelArguments = 1, machine.KernelArguments()
	base, err := baseimage.Ensure(t.Context(), kind, "")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), machineLimit)
	t.Cleanup(cancel)
	o.Base, o.Kind = "oci:"+base, kind
	r, err := e2e.Prepare(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	m := newVM(ctx, t, r)
	m.Start(ctx)
	return m, ctx
}
