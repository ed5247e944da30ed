package e2e_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/testnode/machine"
	"dayone.dev/dayone/rebase/firstboot"
)

// TestSoftRebootInAVirtualMachine takes a machine with a kernel of its own through Day 1 with one boot of its hardware,
// and compares what both kinds of reboot take.
func TestSoftRebootInAVirtualMachine(t *testing.T) {
	onlyAsked(t)
	r := reboots(t)
	t.Logf("soft %.1f s, hard %.1f s, of which kernel and initramfs %.1f s", r.soft.Seconds(), r.hard.Seconds(),
		r.kernel.Seconds())
	assert.Less(t, r.soft, r.hard)
}

// BenchmarkRebootInAVirtualMachine is for the figures' table.
func BenchmarkRebootInAVirtualMachine(b *testing.B) {
	for range b.N {
		r := reboots(b)
		b.ReportMetric(r.soft.Seconds(), "soft-s")
		b.ReportMetric(r.hard.Seconds(), "hard-s")
		b.ReportMetric(r.kernel.Seconds(), "kernel-s")
	}
}

// figures are of one machine. kernel is the part of hard from the start of the kernel until the initramfs ends.
type figures struct{ soft, hard, kernel time.Duration }

// reboots takes a master to its image by the soft reboot of its first boot, then to a second image by a hard and to a
// third one by a soft reboot, and gives how long these two took from the order until the agent names the image as the
// booted one and the system is up. The preparing counts as part of the soft one.
func reboots(t testing.TB) (f figures) {
	t.Helper()
	m, ctx := startVM(t, baseimage.ForkyMachine)
	require.NoError(t, m.WaitBoot(ctx, 1))
	m.took("boot 1: kernel, initramfs with Ignition, systemd")
	require.NoError(t, m.WaitSoftReboot(ctx, 1))
	m.took("pull, stage, soft reboot")
	first := m.doneWith(ctx)
	record := m.record(ctx)
	assert.Equal(t, "1 hardware boot, 1 soft reboot", record.Counts(), record.Hard)
	assert.Equal(t, 1, m.Boots())

	images := []string{first, m.pushLater(first)}
	m.output(ctx, firstboot.DaemonPath+" stage "+images[1])
	m.took("stage")
	f.hard = m.reboot(ctx, "systemctl reboot", images[1], func() error { return m.WaitBoot(ctx, 2) })
	m.took("hard reboot, verified")
	const started = "systemctl show --value --property=UserspaceTimestampMonotonic"
	kernel, err := time.ParseDuration(m.output(ctx, started) + "us")
	require.NoError(t, err)
	f.kernel = kernel
	id := m.output(ctx, "cat /proc/sys/kernel/random/boot_id")

	images = append(images, m.pushLater(images[1]))
	m.output(ctx, firstboot.DaemonPath+" stage "+images[2])
	m.took("stage")
	f.soft = m.reboot(ctx, "ostree admin prepare-soft-reboot 0 && systemctl soft-reboot", images[2],
		func() error { return m.WaitSoftReboot(ctx, 2) })
	m.took("soft reboot, verified")
	assert.Equal(t, id, m.output(ctx, "cat /proc/sys/kernel/random/boot_id"), "the hardware ran on")
	assert.Equal(t, "SoftRebootsCount=1", m.output(ctx, "systemctl show --property=SoftRebootsCount"), "in this boot")
	assert.Equal(t, 2, m.Boots())
	return f
}

// reboot gives the order and waits until the image runs.
func (m *vm) reboot(ctx context.Context, order, image string, wait func() error) time.Duration {
	m.t.Helper()
	begin := time.Now()
	said, _, err := m.Run(ctx, order+" && sleep 600")
	require.Error(m.t, err, "its userspace goes down: %s", said)
	require.NoError(m.t, wait())
	require.Equal(m.t, image, m.status(ctx).Booted.Image.String())
	assert.Equal(m.t, "running", m.output(ctx, "systemctl is-system-running --wait || systemctl --failed"))
	return time.Since(begin)
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
	o.Masters = 1
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
