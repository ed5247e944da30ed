package deployers

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

func TestFirstBootThroughTheMirror(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs)
		before := f.registry.BlobGets()
		f.start()
		r := f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))

		assert.Equal(t, kind, r.Deployer, r.Reason)
		assert.Equal(t, f.image, r.Booted)
		assert.Equal(t, 1, r.Reboots)
		assert.Equal(t, 2, f.boots())
		assert.Equal(t, 3, f.registry.BlobGets()-before, "the configuration twice and the one layer that the base OS lacks")
		assert.Equal(t, "hello", f.output("hello"))
		assert.Contains(t, f.output("cat", "/proc/cmdline"), kernelArgument)
		assert.Contains(t, f.output("cat", "/proc/cmdline"), "root=LABEL=root")
		assert.Equal(t, f.image, f.output("cat", "/etc/machine-config-daemon/currentimage"))
		assert.Contains(t, f.output("cat", "/etc/machine-config-daemon/currentconfig"), f.served.Name)
		assert.Equal(t, "600", f.output("stat", "-c", "%a", "/etc/machine-config-daemon/currentconfig"))
		assert.Contains(t, f.output("cat", "/etc/machine-config-daemon/node-annotations.json"),
			`"`+manifests.AnnotationDesiredOSImage+`":"`+f.image)
		assert.NotRegexp(t, `(?m)\bboth$`, f.output("ostree", "admin", "config-diff"),
			"written by Ignition and in the image: no local edit")
		assert.NotContains(t, f.log(), deploytest.Password)
		s := f.status()
		assert.Equal(t, f.image, s.Booted.Image.String())
		assert.Contains(t, s.Booted.KernelArguments, kernelArgument)
		assert.NotNil(t, s.Rollback)
		assert.Nil(t, s.Staged)

		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, 1, f.record().Reboots, "nothing more to do on a later boot")
		assert.Len(t, f.record().Boots, 2)
	})
}

func TestFirstBootWithoutReboot(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			digest, err := f.base.Digest()
			require.NoError(f.t, err)
			f.served.Spec.OSImageURL, f.served.Spec.KernelArguments = repository+"@"+digest.String(), nil
		})
		f.start()
		r := f.waitDone()
		require.NoError(t, f.node.WaitReady(t.Context()))
		assert.Equal(t, 1, f.boots())
		assert.Zero(t, r.Reboots)
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
	})
}

func TestFirstBootUnderSystemd(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixtureOn(t, baseimage.Debian, kind, programs,
			func(f *fixture) { f.served.Spec.OSImageURL = f.push(f.layered(kubelet("/bin/true")...)) })
		f.start()
		r := f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))
		assert.Equal(t, kind, r.Deployer)
		assert.Equal(t, f.image, r.Booted)
		assert.Equal(t, f.image, f.status().Booted.Image.String())
		assert.Equal(t, 2, f.boots())
		assert.Equal(t, 1, r.Reboots)
		assert.Contains(t, f.output("cat", "/proc/cmdline"), kernelArgument)
		f.says("dayone-firstboot: waiting until what kubelet needs runs")
		f.says("dayone-firstboot: this node runs its image")
		f.until("the journal says so, too", func() bool {
			return strings.Contains(f.output("journalctl", "-b", "-u", firstboot.UnitName), "this node runs its image")
		})
		assert.Contains(t, f.output("journalctl", "-b", "-1", "-u", "ostree-finalize-staged.service"), "Stopped",
			"systemd finalized, in order")
		assert.Equal(t, "running", f.output("systemctl", "is-system-running", "--wait"))
		assert.NotRegexp(t, `(?m)\bboth$`, f.output("ostree", "admin", "config-diff"))

		require.NoError(t, f.node.Reboot(t.Context()))
		active, _ := f.run("systemctl is-active " + firstboot.UnitName)
		assert.Equal(t, "inactive", strings.TrimSpace(active.Stdout), "its conditions hold it back")
	})
}

// kubelet is a service that needs kubelet-dependencies.target, which needs a command to succeed.
func kubelet(command string) []deploytest.Entry {
	const dir = "usr/lib/systemd/system/"
	return []deploytest.Entry{{Name: dir + "kubelet-dependencies.target",
		Body: "[Unit]\nRequires=needed.service\nAfter=needed.service\n"},
		{Name: dir + "needed.service", Body: "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=" + command + "\n"},
		{Name: dir + "kubelet.service",
			Body: "[Unit]\nWants=kubelet-dependencies.target\nAfter=kubelet-dependencies.target\n" +
				"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"},
		{Name: dir + "multi-user.target.wants/kubelet.service", Link: "../kubelet.service"}}
}

func TestImageWithoutWhatKubeletNeedsIsLeft(t *testing.T) {
	need(t)
	t.Parallel()
	f := newFixtureOn(t, baseimage.Debian, deploy.KindOSTree, nil, func(f *fixture) {
		f.config.HealthTimeout = soon(2500)
		f.served.Spec.OSImageURL = f.push(f.layered(kubelet("/bin/false")...))
	})
	f.start()
	f.until("back on stock", func() bool { return f.record().State == firstboot.StateRolledBack })
	require.NoError(t, f.node.WaitBoot(t.Context(), 3))
	assert.Contains(t, f.record().WentBack, "kubelet-dependencies.target")
	assert.NotEqual(t, f.image, f.status().Booted.Image.String())
	assert.Equal(t, 3, f.boots())
}

func TestReadOnlySysrootIsNoObstacle(t *testing.T) {
	need(t)
	t.Parallel()
	f := newFixture(t, deploy.KindOSTree, nil) // the others' programs have this in themselves
	out, err := exec.CommandContext(t.Context(), "ostree", "config", "--repo="+f.node.Sysroot+"/ostree/repo", "set",
		"sysroot.readonly", "true").CombinedOutput()
	require.NoError(t, err, "%s", out)
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	assert.Equal(t, f.image, r.Booted)
	assert.Contains(t, f.output("grep", " /sysroot ", "/proc/self/mounts"), " ro,")
}
