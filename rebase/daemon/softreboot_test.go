package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/softreboot"
)

// tree is where a deployment of an image is.
func tree(n, serial int) string { return fmt.Sprintf("ostree/deploy/os/deploy/%064d.%d", n, serial) }

// softFixture is a layered node that can reboot softly, with its deployments on disk as far as the agent reads them.
// The real reboots are tested on nodes (hack/e2e).
func softFixture(t *testing.T) (f *fixture, configs []*mcfgv1.MachineConfig) {
	f = newFixture(t)
	script := &deploytest.Script{Answers: map[string]string{"ostree --version": "Version: '2026.4'",
		"systemctl --version": "systemd 262 (262.1)"}}
	f.run = script.Run
	f.restart()
	f.write("proc/1/mountinfo", "27 1 0:40 / / ro - overlay composefs ro\n")
	f.write("proc/uptime", "1000.00 1.00\n")
	const target = "usr/lib/systemd/system/soft-reboot.target"
	f.write(target, "[Unit]\n")
	require.NoError(t, os.MkdirAll(filepath.Join(f.m.root, "etc"), 0o755))
	for n := 1; n <= 3; n++ {
		for serial := range 5 {
			f.write(tree(n, serial)+"/"+target, "[Unit]\n")
			f.write(tree(n, serial)+"/usr/lib/modules/6.1/vmlinuz", "kernel")
			require.NoError(t, os.Symlink(filepath.Join(f.m.root, "etc"), filepath.Join(f.m.root, tree(n, serial), "etc")))
		}
	}
	name := strings.ReplaceAll(strings.ToLower(t.Name()), "/", ".")
	for n := 1; n <= 3; n++ {
		configs = append(configs, rendered(fmt.Sprintf("rendered-%s-%d", name[:min(len(name), 40)], n),
			fmt.Sprintf("/etc/unknown=%d", n)))
	}
	f.join(configs[0], image(1))
	return f, configs
}

// goSoft gives the node its next target, as the node controller does for a pool with a reboot policy.
func (f *fixture) goSoft(mc *mcfgv1.MachineConfig, n int, policy softreboot.Policy) {
	f.Helper()
	text, err := disruption.Promise{Config: mc.Name, Image: image(n), Level: disruption.LevelReboot, Reboot: policy,
		Change: disruption.ImageContent}.Encode()
	require.NoError(f, err)
	node := f.object()
	was := node.DeepCopy()
	node.Annotations[manifests.AnnotationPlan] = text
	require.NoError(f, f.env.Client.Patch(f.Context(), node, client.MergeFrom(was)))
	f.aim(mc, image(n))
}

func TestSoftRebootInsteadOfAHardOne(t *testing.T) {
	f, configs := softFixture(t)
	f.goSoft(configs[1], 2, softreboot.SoftIfPossible)
	f.reaches(daemon.Draining)
	assert.Equal(t, "soft", f.record().SoftReboot, "it is known before the node is cordoned")
	f.settle()
	assert.Equal(t, []int{0, 1}, []int{f.m.boots, f.m.softs}, "hardware boots, soft reboots")
	assert.Equal(t, image(2), f.m.booted)
	assert.Equal(t, "soft", f.record().LastBoot)

	f.goSoft(configs[2], 3, softreboot.Hard)
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, "hard", f.record().LastBoot)
	assert.Empty(t, f.record().SoftReboot)
}

func TestRefusedSoftRebootIsAHardOne(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fixture)
		why    string
	}{
		{"kernel", func(f *fixture) { f.write(tree(2, 1)+"/usr/lib/modules/6.1/vmlinuz", "KERNEL") },
			"the deployments differ in the kernel or its initramfs"},
		{"ostree", func(f *fixture) { f.m.refuseSoft = errors.New("Cannot soft-reboot to deployment") },
			"Cannot soft-reboot to deployment"},
		{"masked", func(f *fixture) { f.write("etc/systemd/system/soft-reboot.target", "") },
			"soft-reboot.target is masked in the running system"},
		{"floor", func(f *fixture) {
			f.run = (&deploytest.Script{Answers: map[string]string{"ostree --version": "Version: '2025.2'",
				"systemctl --version": "systemd 257 (257.8)"}}).Run
			f.restart()
		}, "ostree 2025.2 is older than 2026.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, configs := softFixture(t)
			c.change(f)
			f.goSoft(configs[1], 2, softreboot.SoftRequired)
			f.settle()
			assert.Equal(t, []int{1, 0}, []int{f.m.boots, f.m.softs}, "hardware boots, soft reboots")
			assert.Equal(t, "hard: "+c.why, f.record().LastBoot)
			assert.Equal(t, "hard: "+c.why, f.record().SoftReboot)
		})
	}
}

func TestKernelArgumentsRebootHard(t *testing.T) {
	f, configs := softFixture(t)
	configs[1].Spec.KernelArguments = []string{"a=1"}
	f.goSoft(configs[1], 2, softreboot.SoftIfPossible)
	f.reaches(daemon.Draining)
	assert.Equal(t, "hard: the deployments differ in kernelArguments", f.record().SoftReboot)
	f.settle()
	assert.Equal(t, 1, f.m.boots)
}

// What a soft reboot leaves behind is a reason for one hard reboot into the same image, and for none softly again.
func TestSoftRebootThatLeavesSomethingEndsHard(t *testing.T) {
	f, configs := softFixture(t)
	survivor := filepath.Join(f.m.root, "proc/80")
	f.m.afterSwitch = func() {
		f.write("proc/80/stat", "80 (old) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 500 1 1\n")
	}
	f.goSoft(configs[1], 2, softreboot.SoftIfPossible)
	for f.m.softs == 0 {
		require.NoError(t, f.step())
	}
	f.m.afterSwitch = nil
	require.NoError(t, f.step()) // sees the survivor
	require.NoError(t, f.step()) // asks for the hard reboot
	assert.Equal(t, 1, f.m.boots)
	require.NoError(t, os.RemoveAll(survivor))
	f.settle()
	const why = "process 80 (old) of the userspace before runs on"
	assert.Equal(t, []int{1, 0}, []int{f.m.boots, f.m.softs}, "hardware boots, soft reboots since")
	assert.Equal(t, "hard: after a soft reboot: "+why, f.record().LastBoot)

	f.goSoft(configs[2], 3, softreboot.SoftIfPossible)
	f.settle()
	assert.Equal(t, "soft", f.record().LastBoot, "another image")
	f.goSoft(configs[1], 2, softreboot.SoftIfPossible)
	f.settle()
	assert.Equal(t, "hard: an earlier soft reboot into this image failed: "+why, f.record().LastBoot)
}

func TestSoftRebootThatDoesNotComeIsAHardOne(t *testing.T) {
	f, configs := softFixture(t)
	clock := time.Now()
	f.now = func() time.Time { return clock }
	f.restart()
	f.switching(configs[1])
	f.m.rebooting = false // systemd does not get there
	clock = clock.Add(11 * time.Minute)
	f.settle()
	assert.Equal(t, []int{1, 0}, []int{f.m.boots, f.m.softs}, "hardware boots, soft reboots")
	assert.Equal(t, "hard: the soft reboot did not come within 10m0s", f.record().LastBoot)
}

func TestPowerCutDuringASoftReboot(t *testing.T) {
	f, configs := softFixture(t)
	f.switching(configs[1])
	f.powerCut()
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
	assert.Equal(t, []int{1, 1}, []int{f.m.boots, f.m.softs}, "the power cut, and the soft reboot after it")
	assert.Equal(t, "soft", f.record().LastBoot)
	assert.Equal(t, nodestate.StateDone, f.record().State)
}

func TestUnhealthyUserspaceBootsTheHardware(t *testing.T) {
	f, configs := softFixture(t)
	clock := time.Now()
	f.now = func() time.Time { return clock }
	const isActive = "is-active --quiet kubelet.service"
	f.m.fails = map[string]error{}
	f.write("usr/lib/systemd/system/kubelet.service", "[Unit]\n")
	f.m.afterSwitch = func() { f.m.fails[isActive] = errors.New("inactive") }
	f.restart()
	f.goSoft(configs[1], 2, softreboot.SoftIfPossible)
	require.ErrorContains(t, f.fails(), "not healthy after a soft reboot")
	clock = clock.Add(11 * time.Minute)
	for f.m.boots == 0 {
		require.NoError(t, f.step())
	}
	delete(f.m.fails, isActive) // on fresh hardware it starts
	f.settle()
	assert.Equal(t, []int{1, 0}, []int{f.m.boots, f.m.softs}, "hardware boots, soft reboots since")
	assert.Contains(t, f.record().LastBoot, "hard: after a soft reboot: the node is not healthy")
}

// A node that is not healthy on fresh hardware either goes back, and stays there until it gets another target.
func TestUnhealthyOnFreshHardwareGoesBack(t *testing.T) {
	f, configs := softFixture(t)
	clock := time.Now()
	f.now = func() time.Time { return clock }
	f.m.fails = map[string]error{}
	f.write("usr/lib/systemd/system/kubelet.service", "[Unit]\n")
	const isActive = "is-active --quiet kubelet.service"
	f.m.afterSwitch = func() { f.m.fails[isActive] = errors.New("inactive") }
	f.restart()
	f.goSoft(configs[1], 2, softreboot.SoftIfPossible)
	require.ErrorContains(t, f.fails(), "not healthy after a soft reboot")
	clock = clock.Add(11 * time.Minute)
	require.ErrorContains(t, f.fails(), "not healthy after a soft reboot")
	assert.Equal(t, []int{1, 0}, []int{f.m.boots, f.m.softs}, "first the hardware boots into the same image")
	assert.Equal(t, image(2), f.m.booted)
	clock = clock.Add(11 * time.Minute)
	f.m.afterSwitch = nil
	require.ErrorContains(t, f.fails(), "the node went back from")
	assert.Equal(t, []int{2, 0}, []int{f.m.boots, f.m.softs}, "and then into the one before")
	assert.Equal(t, image(1), f.m.booted)
	require.ErrorContains(t, f.fails(), "give another config or image, or create /run/machine-config-daemon-force")
	assert.Equal(t, 2, f.m.boots, "it stays there")
	r := f.record()
	assert.Equal(t, nodestate.StateDegraded, r.State)
	assert.Contains(t, r.LastBoot, "hard: back in the image before: the node is not healthy")
	assert.Equal(t, image(1), r.CurrentImage)

	delete(f.m.fails, isActive)
	f.goSoft(configs[2], 3, softreboot.SoftIfPossible)
	f.settle()
	assert.Equal(t, image(3), f.m.booted)
	assert.Equal(t, "soft", f.record().LastBoot, "another image")
}

// firedWatch is what the watch of a soft reboot leaves.
const firedWatch = "var/lib/dayone/soft-reboot-watch"

// The agent does not start in the new userspace: the watch boots the hardware.
func TestWatchBootsTheHardware(t *testing.T) {
	f, configs := softFixture(t)
	f.switching(configs[1])
	f.m.boot(t)
	f.write(firedWatch, "hard\n")
	f.powerCut()
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
	assert.Equal(t, "hard: after a soft reboot: nothing in the new userspace has verified it", f.record().LastBoot)
	assert.Contains(t, f.read("var/lib/dayone/soft-reboot-failures.json"), "nothing in the new userspace")
}

// The agent does not start on fresh hardware either: the watch has returned to the image before, and the node stays
// there until an administrator asks for the whole of it.
func TestWatchReturnsToTheImageBefore(t *testing.T) {
	f, configs := softFixture(t)
	f.switching(configs[1])
	f.write(firedWatch, "returned\n")
	f.powerCut()
	for range 3 {
		require.ErrorContains(t, f.fails(), "the node went back from")
	}
	assert.Equal(t, image(1), f.m.booted)
	assert.Equal(t, 1, f.m.boots, "it does not try again by itself")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	const why = "nothing in the new userspace has verified it, nor in the boot of the hardware after it"
	assert.Equal(t, "hard: back in the image before: "+why, f.record().LastBoot)
	assert.Equal(t, 1, strings.Count(f.read("var/lib/dayone/soft-reboot-failures.json"), `"why"`))

	f.write("run/machine-config-daemon-force", "")
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
	assert.Equal(t, []int{2, 0}, []int{f.m.boots, f.m.softs}, "hard: a whole update")
}

// switching brings the node to where the soft reboot into a config's image has been asked for.
func (f *fixture) switching(mc *mcfgv1.MachineConfig) {
	f.Helper()
	f.goSoft(mc, 2, softreboot.SoftIfPossible)
	for !f.m.rebooting {
		_, err := f.agent.Step(f.Context())
		require.NoError(f, err)
		require.NoError(f, f.answerDrain())
	}
	require.True(f, f.m.soft)
}
