package testnode_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
)

// nextBooted is ostree's note of the deployment that a soft reboot takes.
const nextBooted = "/run/ostree/nextroot-booted"

// stageNamed stages an image with /etc/$1 and the further files of $2; the rest are arguments of its deployment.
const stageNamed = `set -e
name=$1 more=$2
shift 2
booted=$(ostree admin status | sed -n 's/^\* dayone \([0-9a-f]*\)\..*$/\1/p')
tree=/var/tmp/$name
mkdir -p $tree/usr/etc
echo $name >$tree/usr/etc/$name
for file in $more; do mkdir -p $tree/$(dirname $file); echo $name >$tree/$file; done
ostree --repo=/sysroot/ostree/repo commit -b $name --tree=ref=$booted --tree=dir=$tree --bootable >&2
ostree admin deploy --stage "$@" $name`

// stageImage stages an image on the node.
func stageImage(t *testing.T, n *testnode.Node, name, files string, arguments ...string) {
	t.Helper()
	output(t, n, append([]string{"sh", "-c", stageNamed, "sh", name, files}, arguments...)...)
}

func bootID(t *testing.T, n *testnode.Node) string {
	t.Helper()
	return output(t, n, "cat", "/proc/sys/kernel/random/boot_id")
}

// counts are the node's boots and soft reboots.
func counts(t *testing.T, n *testnode.Node) [2]int {
	t.Helper()
	boots, err := n.Boots()
	require.NoError(t, err)
	soft, err := n.SoftReboots()
	require.NoError(t, err)
	return [2]int{boots, soft}
}

func assertFile(t *testing.T, n *testnode.Node, path string, there bool) {
	t.Helper()
	r, err := n.Exec(t.Context(), "test", "-e", path)
	require.NoError(t, err)
	assert.Equal(t, there, r.ExitCode == 0, path)
}

// bootedLine is the deployment that ostree takes for the booted one.
func bootedLine(t *testing.T, n *testnode.Node) string {
	t.Helper()
	for _, line := range strings.Split(output(t, n, "ostree", "admin", "status"), "\n") {
		if strings.HasPrefix(line, "*") {
			return line
		}
	}
	return ""
}

func TestSoftReboots(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Forky)
	start(t, n)
	id, stock := bootID(t, n), bootedLine(t, n)
	assert.Equal(t, "overlay", output(t, n, "findmnt", "--noheadings", "--output=FSTYPE", "/"), "the root is composefs")

	output(t, n, "sh", "-c", "echo before >/etc/before")
	stageImage(t, n, "second", "")
	output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
	assert.Contains(t, output(t, n, "ostree", "admin", "status"), "(staged) (soft-reboot)")
	output(t, n, "sh", "-c", "echo after >/etc/after")
	require.NoError(t, n.SoftReboot(t.Context()))
	assert.Equal(t, "second\nbefore\nafter", output(t, n, "cat", "/etc/second", "/etc/before", "/etc/after"))
	assert.Equal(t, id, bootID(t, n), "it is the same boot")
	assert.Equal(t, [2]int{1, 1}, counts(t, n))
	second := bootedLine(t, n)
	assert.NotEqual(t, stock, second)

	t.Run("the second one in a boot", func(t *testing.T) { secondSoftReboot(t, n, second) })
	t.Run("another kernel or its arguments", func(t *testing.T) {
		for name, line := range map[string][]string{
			"vmlinuz":   {"usr/lib/modules/" + baseimage.KernelVersion + "/vmlinuz"},
			"arguments": {"", "--karg-append=quiet"},
		} {
			stageImage(t, n, name, line[0], line[1:]...)
			r, err := n.Exec(t.Context(), "ostree", "admin", "prepare-soft-reboot", "0")
			require.NoError(t, err)
			assert.Equal(t, 1, r.ExitCode, name)
			assert.Contains(t, r.Stderr, "Cannot soft-reboot to deployment with different kernel state", name)
			assert.Contains(t, output(t, n, "ostree", "admin", "status"), "(staged)\n", name)
			assertFile(t, n, nextBooted, false)
			output(t, n, "ostree", "admin", "undeploy", "0")
		}
	})
	t.Run("taken back", func(t *testing.T) {
		stageImage(t, n, "fourth", "")
		output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
		output(t, n, "mountpoint", "/run/nextroot")
		output(t, n, "ostree", "admin", "prepare-soft-reboot", "--reset")
		assert.NotContains(t, output(t, n, "ostree", "admin", "status"), "soft-reboot")
		r, err := n.Exec(t.Context(), "mountpoint", "/run/nextroot")
		require.NoError(t, err)
		assert.NotZero(t, r.ExitCode)
	})
	t.Run("taken back in another mount namespace", func(t *testing.T) {
		output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
		output(t, n, "unshare", "--mount", "--propagation=slave", "ostree", "admin", "prepare-soft-reboot", "--reset")
		assertFile(t, n, nextBooted, false)
		assert.Contains(t, output(t, n, "cat", "/proc/1/mountinfo"), " /run/nextroot ", "ostree's umount stays in there")
		output(t, n, "umount", "--recursive", "/run/nextroot")
	})
	t.Run("unmounted without ostree", func(t *testing.T) {
		output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
		output(t, n, "umount", "--recursive", "/run/nextroot")
		assertFile(t, n, nextBooted, true)
		assert.Contains(t, output(t, n, "ostree", "admin", "status"), "(staged) (soft-reboot)", "it says so all the same")
		output(t, n, "ostree", "admin", "prepare-soft-reboot", "--reset")
		assertFile(t, n, nextBooted, false)
	})
	t.Run("the hardware although prepared", func(t *testing.T) {
		output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
		require.NoError(t, n.Reboot(t.Context()))
		assert.Equal(t, [2]int{2, 2}, counts(t, n))
		assert.NotEqual(t, id, bootID(t, n))
		assertFile(t, n, "/etc/fourth", true)
	})
}

// secondSoftReboot shows what ostree takes for booted afterwards, and what mends it.
func secondSoftReboot(t *testing.T, n *testnode.Node, before string) {
	stageImage(t, n, "third", "")
	output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
	require.NoError(t, n.SoftReboot(t.Context()))
	assert.Equal(t, [2]int{1, 2}, counts(t, n))
	assertFile(t, n, "/etc/third", true)
	assertFile(t, n, nextBooted, true)
	assert.Equal(t, strings.Fields(before)[2], strings.Fields(bootedLine(t, n))[2], "ostree names the one before")
	output(t, n, "systemctl", "restart", "ostree-boot-complete.service")
	assertFile(t, n, nextBooted, false)
	assert.NotEqual(t, strings.Fields(before)[2], strings.Fields(bootedLine(t, n))[2])
}

func TestPowerCutAroundASoftReboot(t *testing.T) {
	n := newNode(t, newLab(t), "m0", baseimage.Forky)
	start(t, n)
	stageImage(t, n, "second", "")
	output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
	require.NoError(t, n.PowerCut(t.Context()))
	start(t, n)
	assertFile(t, n, "/etc/second", false)
	assert.NotContains(t, output(t, n, "ostree", "admin", "status"), "soft-reboot", "nothing was written yet")

	stageImage(t, n, "third", "")
	output(t, n, "ostree", "admin", "prepare-soft-reboot", "0")
	require.NoError(t, n.SoftReboot(t.Context()))
	require.NoError(t, n.PowerCut(t.Context()))
	start(t, n)
	assert.Equal(t, "third", output(t, n, "cat", "/etc/third"), "the boot entries are the new deployment's")
	assert.Equal(t, [2]int{3, 1}, counts(t, n))
	output(t, n, "ostree", "fsck", "--repo=/sysroot/ostree/repo", "--quiet")
}
