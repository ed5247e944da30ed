package testnode_test

import (
	"bufio"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
)

// stageSecond makes an image with /etc/second on the node itself and stages it.
const stageSecond = `set -e
stock=$(ostree admin status | sed -n 's/^\* dayone \(.*\)\.0$/\1/p')
mkdir -p /var/tmp/overlay/usr/etc
echo two >/var/tmp/overlay/usr/etc/second
ostree --repo=/sysroot/ostree/repo commit -b second --tree=ref=$stock --tree=dir=/var/tmp/overlay --bootable
ostree admin deploy --stage second`

func TestRebootFinalizesStaged(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Tiny)
	start(t, n)
	output(t, n, "sh", "-c", "echo local >/etc/local")
	output(t, n, "sh", "-c", stageSecond)
	output(t, n, "sh", "-c", "echo later >/etc/local-after-staging")
	require.NoError(t, n.Reboot(t.Context()))

	assert.Equal(t, "two\nlocal\nlater", output(t, n, "cat", "/etc/second", "/etc/local", "/etc/local-after-staging"))

	require.NoError(t, n.Stop(t.Context()))
	require.NoError(t, n.BootPrevious())
	start(t, n)
	r, err := n.Exec(t.Context(), "test", "-e", "/etc/second")
	require.NoError(t, err)
	assert.Equal(t, 1, r.ExitCode, "the boot menu's other entry is the first deployment")
	boots, err := n.Boots()
	require.NoError(t, err)
	assert.Equal(t, 3, boots)
}

func TestPowerCutKeepsTheOldDeployment(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Tiny)
	start(t, n)
	output(t, n, "sh", "-c", stageSecond)
	assert.Contains(t, output(t, n, "ostree", "admin", "status"), "(staged)")
	require.NoError(t, n.PowerCut(t.Context()))
	running, err := n.Running()
	require.NoError(t, err)
	assert.False(t, running)
	_, err = n.Exec(t.Context(), "true")
	assert.ErrorContains(t, err, "the node is off power cut")

	start(t, n)
	r, err := n.Exec(t.Context(), "test", "-e", "/etc/second")
	require.NoError(t, err)
	assert.Equal(t, 1, r.ExitCode)
	assert.NotContains(t, output(t, n, "ostree", "admin", "status"), "(staged)")
}

func TestPulledCableCutsOneNodeOnly(t *testing.T) {
	lab := newLab(t)
	a, b := newNode(t, lab, "a", baseimage.Tiny), newNode(t, lab, "b", baseimage.Tiny)
	start(t, a)
	start(t, b)
	ping := func(n *testnode.Node) bool {
		r, err := n.Exec(t.Context(), "ping", "-c", "1", "-W", "1", lab.Network.Bootstrap().String())
		require.NoError(t, err)
		return r.ExitCode == 0
	}
	answered := func(n *testnode.Node) { // a switch learns, and a busy machine answers late
		t.Helper()
		require.Eventually(t, func() bool { return ping(n) }, 2*time.Minute, 20*time.Millisecond)
	}
	answered(a)
	require.NoError(t, a.SetLink(t.Context(), false))
	assert.False(t, ping(a))
	answered(b)
	require.NoError(t, a.SetLink(t.Context(), true))
	answered(a)
}

func TestDiskAndBootHaveTheSizeAskedFor(t *testing.T) {
	lab := newLab(t)
	n, err := lab.NewNode(t.Context(), "m0", testnode.NodeOptions{
		Sysroot: testnode.SysrootOptions{Base: base(t, baseimage.Tiny), DiskSize: 256 << 20, BootSize: 1 << 20}})
	require.NoError(t, err)
	start(t, n)
	for where, fill := range map[string]string{"/var": "dd if=/dev/zero of=/var/full bs=1M",
		"/boot": "dd if=/dev/zero of=/boot/full bs=64k"} {
		r, err := n.Exec(t.Context(), "sh", "-c", fill)
		require.NoError(t, err)
		assert.Contains(t, r.Stderr, "No space left on device", where)
	}
	output(t, n, "rm", "/var/full", "/boot/full")
	output(t, n, "sh", "-c", stageSecond)
	require.NoError(t, n.Reboot(t.Context()))
	assert.Equal(t, "two", output(t, n, "cat", "/etc/second"))
	require.NoError(t, lab.Close(t.Context()))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), lab.ID)
}

func TestNodeCannotChangeTheMachine(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Tiny)
	start(t, n)
	for _, c := range []struct {
		name   string
		script string
		status int
	}{
		{"the kernel's settings are read-only", "echo 1 >/proc/sys/kernel/panic", 1},
		{"its network's settings are its own", "echo 1 >/proc/sys/net/ipv4/ip_forward", 0},
		{"it freezes no file system", "fsfreeze --freeze /dev/shm 2>&1 | grep -q 'not permitted'", 0},
		{"it sees no processes but its own", "test $(ls /proc | grep -c '^[0-9]') -lt 20", 0},
	} {
		r, err := n.Exec(t.Context(), "sh", "-c", c.script)
		require.NoError(t, err)
		assert.Equal(t, c.status, r.ExitCode, c.name)
	}
	bounding := output(t, n, "sed", "-n", "s/^CapBnd:[^0-9a-f]*//p", "/proc/1/status")
	set, err := strconv.ParseUint(bounding, 16, 64)
	require.NoError(t, err)
	assert.Zero(t, set&(1<<unix.CAP_SYS_TIME|1<<unix.CAP_SYS_MODULE), "the clock and modules are the machine's: %s",
		bounding)
}

func TestFollowLog(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Tiny)
	ctx, enough := context.WithCancel(t.Context())
	r, w, err := os.Pipe()
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- n.FollowLog(ctx, w) }()
	start(t, n)
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.Contains(lines.Text(), "init: booted") {
		continue
	}
	assert.Contains(t, lines.Text(), "dayone test OS")
	enough()
	assert.NoError(t, <-done)
}
