package deployers

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/softreboot"
)

// sameKernel lets the node's image be the base with the config's files: kernel and arguments stay.
func sameKernel(more ...deploytest.Entry) change {
	return func(f *fixture) {
		f.served.Spec.KernelArguments = nil
		entries := append([]deploytest.Entry{{Name: "etc/both", Body: "both\n"}, {Name: "etc/from-image", Body: "image\n"}},
			more...)
		img, err := mutate.AppendLayers(f.base, deploytest.Layer(f.t, entries...))
		require.NoError(f.t, err)
		hash, err := machineconfig.ContentHash(f.served.Spec)
		require.NoError(f.t, err)
		f.served.Spec.OSImageURL = f.push(f.edit(img, func(c *v1.ConfigFile) {
			c.Config.Labels[firstboot.LabelConfigHash], c.Config.Labels[firstboot.LabelRenderedConfig] = hash, f.served.Name
		}))
	}
}

// newSoftFixture is a node that can reboot softly.
func newSoftFixture(t testing.TB, kind deploy.Kind, programs []string, changes ...change) *fixture {
	return newFixtureOn(t, baseimage.Forky, kind, programs, changes...)
}

// counts are the hardware's boots and the soft reboots, as the lab counts them.
func (f *fixture) counts() [2]int {
	f.t.Helper()
	soft, err := f.node.SoftReboots()
	require.NoError(f.t, err)
	return [2]int{f.boots(), soft}
}

// lastBoot is what firstboot tells the cluster of how the node came into what it runs.
func (f *fixture) lastBoot() string {
	f.t.Helper()
	annotations := map[string]string{}
	require.NoError(f.t, json.Unmarshal([]byte(f.output("cat", "/etc/machine-config-daemon/node-annotations.json")),
		&annotations))
	return annotations[manifests.AnnotationLastBoot]
}

func TestFirstBootBySoftReboot(t *testing.T) {
	need(t)
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.kind), func(t *testing.T) {
			t.Parallel()
			f := newSoftFixture(t, k.kind, k.programs, sameKernel())
			f.start()
			record := f.waitDone()
			assert.Equal(t, "1 hardware boot, 1 soft reboot", record.Counts())
			require.NoError(t, f.node.WaitSoftReboot(t.Context(), 1), "the lab notices it a moment later")
			assert.Equal(t, [2]int{1, 1}, f.counts())
			assert.Equal(t, f.image, f.status().Booted.Image.String())
			assert.Equal(t, "soft", f.lastBoot())
			assert.Equal(t, "image", strings.TrimSpace(f.output("cat", "/etc/from-image")))
			f.says("boots 1 hardware boot, 1 soft reboot")
			require.NoError(t, f.node.Reboot(t.Context()))
			assert.Equal(t, f.image, f.status().Booted.Image.String(), "the boot entries are the image's")
		})
	}
}

func TestFirstBootRebootsHardWithTheReason(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range []struct {
		name    string
		bootc   string // its version; empty: ostree deploys
		changes []change
		want    string
	}{
		{"another kernel", "", []change{sameKernel(deploytest.Entry{Name: kernelPath, Body: "another kernel\n"})},
			"hard: the deployments differ in the kernel or its initramfs"},
		{"kernel arguments", "", nil, "kernel arguments"},
		{"masked", "", []change{sameKernel(deploytest.Entry{Name: "etc/systemd/system/soft-reboot.target",
			Link: "/dev/null"})}, "hard: soft-reboot.target is masked in the staged deployment"},
		{"policy", "", []change{sameKernel(), func(f *fixture) { f.config.RebootPolicy = "Hard" }},
			"hard: the policy is Hard"},
		{"bootc that compares no SELinux policies", "1.11.0", []change{sameKernel()},
			"hard: bootc 1.11.0 is older than 1.12"},
		{"kernel arguments of bootc's", "1.12.0", nil, "the image's kernel arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kind, programs := deploy.KindOSTree, []string(nil)
			if c.bootc != "" {
				kind, programs = deploy.KindBootc, []string{string(deploy.KindBootc)}
			}
			f := newSoftFixture(t, kind, programs, c.changes...)
			if c.bootc != "" {
				f.put(standin.BootcVersionPath, 0o644, []byte(c.bootc+"\n"))
			}
			f.start()
			record := f.waitDone()
			assert.Equal(t, "2 hardware boots", record.Counts())
			assert.Equal(t, [2]int{2, 0}, f.counts())
			assert.Contains(t, f.lastBoot(), c.want)
		})
	}
}

// What keeps the new userspace from being healthy may be what the kernel and /run have kept: the hardware boots into
// the same image, once, and only then the node goes back.
func TestUnhealthyAfterASoftRebootBootsTheHardware(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range []struct {
		name, health string
		state        firstboot.State
		counts       [2]int
	}{
		{"healthy on fresh hardware", `test "$(systemctl show --value --property=SoftRebootsCount)" = 0`,
			firstboot.StateDone, [2]int{2, 1}},
		{"never healthy", "false", firstboot.StateRolledBack, [2]int{3, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newSoftFixture(t, deploy.KindOSTree, nil, sameKernel(), func(f *fixture) {
				f.config.Health = []string{"/bin/sh", "-c", c.health}
				f.config.HealthTimeout = installconfig.Duration(3 * time.Second)
			})
			f.start()
			f.until(string(c.state), func() bool { return f.record().State == c.state })
			assert.Equal(t, c.counts, f.counts())
			assert.Contains(t, f.record().Hard, "after a soft reboot: not healthy")
			failures, err := os.ReadFile(f.path("/var/lib/dayone/soft-reboot-failures.json"))
			require.NoError(t, err)
			assert.Contains(t, string(failures), "not healthy", "that image is never taken softly again")
		})
	}
}

func TestPowerCutAroundASoftReboot(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range []struct {
		name    string
		reached func(f *fixture) bool
	}{
		{"prepared", func(f *fixture) bool { return f.record().Soft != nil }},
		{"under way", func(f *fixture) bool { return strings.Contains(f.log(), "rebooting into the image") }},
		{"before it is verified", func(f *fixture) bool { return f.record().State == firstboot.StateVerifying }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newSoftFixture(t, deploy.KindOSTree, nil, sameKernel(), func(f *fixture) {
				f.config.Health, f.config.MaxReboots = untilMarked(healthMark), 5
			})
			f.start()
			f.until(c.name, func() bool { return c.reached(f) })
			require.NoError(t, f.node.PowerCut(t.Context()))
			f.put(healthMark, 0o644, nil)
			f.start()
			f.waitDone()
			assert.Equal(t, f.image, f.status().Booted.Image.String())
			f.output("test", "!", "-e", "/run/nextroot/usr")
		})
	}
}

// The unit of firstboot does not start in the new userspace. The watch of the soft reboot, which the test does not wait
// for, boots the hardware into the same image, and when nothing starts there either it returns to the boot image.
func TestWatchOfASoftReboot(t *testing.T) {
	need(t)
	t.Parallel()
	const watch, condition = "dayone-soft-reboot-watch", "/var/lib/dayone/starts"
	dropIn := deploytest.Entry{Name: "usr/lib/systemd/system/" + firstboot.UnitName + ".d/10-never.conf",
		Body: "[Unit]\nConditionPathExists=" + condition + "\n"}
	for _, c := range []struct {
		name   string
		starts bool // on fresh hardware
		state  firstboot.State
		counts [2]int
	}{
		{"starts on fresh hardware", true, firstboot.StateDone, [2]int{2, 1}},
		{"never starts", false, firstboot.StateRolledBack, [2]int{3, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newSoftFixture(t, deploy.KindOSTree, nil, sameKernel(dropIn))
			f.start()
			require.NoError(t, f.node.WaitSoftReboot(t.Context(), 1))
			fire := func(boots int) {
				t.Helper()
				require.NoError(t, f.node.WaitReady(t.Context()))
				assert.Equal(t, "image", strings.TrimSpace(f.output("cat", "/etc/from-image")), "the image runs")
				assert.Equal(t, "active", strings.TrimSpace(f.output("systemctl", "is-active", watch+".timer")))
				f.output("systemctl", "start", "--no-block", watch+".service")
				f.until("booted", func() bool { return f.boots() == boots })
			}
			if c.starts {
				f.put(condition, 0o644, nil)
			}
			fire(2)
			if !c.starts {
				fire(3)
			}
			f.until(string(c.state), func() bool { return f.record().State == c.state })
			assert.Equal(t, c.counts, f.counts())
			assert.Contains(t, f.record().Hard, "after a soft reboot: nothing in the new userspace has verified it")
			failures, err := os.ReadFile(f.path("/var/lib/dayone/soft-reboot-failures.json"))
			require.NoError(t, err)
			assert.Contains(t, string(failures), "nothing in the new userspace", "that image is never taken softly again")
			r, _ := f.run("ls /etc/systemd/system/*soft-reboot* /run/systemd/system/*soft-reboot*")
			assert.NotZero(t, r.ExitCode, "nothing of the watch is left: %s", r.Stdout)
			r, _ = f.run("test -e /etc/from-image")
			assert.Equal(t, c.starts, r.ExitCode == 0, "the image runs")
			if !c.starts {
				assert.Contains(t, f.record().WentBack, "nor in the boot of the hardware after it")
			}
		})
	}
}

// Somebody else has prepared a soft reboot, or has prepared one and unmounted it by hand: neither is taken for ours,
// and the node boots its own image.
func TestSomebodyElsesSoftReboot(t *testing.T) {
	need(t)
	t.Parallel()
	const stage = `set -e
booted=$(ostree admin status | sed -n 's/^\* dayone \([0-9a-f]*\)\..*$/\1/p')
mkdir -p /var/tmp/other/usr/etc && echo other >/var/tmp/other/usr/etc/other
ostree --repo=/sysroot/ostree/repo commit -b other --tree=ref=$booted --tree=dir=/var/tmp/other --bootable >&2
ostree admin deploy --stage other
ostree admin prepare-soft-reboot 0
`
	for _, c := range []struct {
		name, also string
		policy     softreboot.Policy
		counts     [2]int
	}{
		{"prepared", "", softreboot.Hard, [2]int{2, 0}},
		{"prepared, and ours is soft", "", softreboot.SoftIfPossible, [2]int{1, 1}},
		{"unmounted by hand", "umount --recursive /run/nextroot", softreboot.SoftIfPossible, [2]int{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newSoftFixture(t, deploy.KindOSTree, nil, sameKernel(), func(f *fixture) { f.config.RebootPolicy = c.policy })
			f.disable(firstboot.UnitName)
			f.start()
			require.NoError(t, f.node.WaitReady(t.Context()))
			f.output("sh", "-c", stage+c.also)
			f.enable(firstboot.UnitName) // for the boots after this one
			f.output("systemctl", "start", "--no-block", firstboot.UnitName)
			f.waitDone()
			f.until("counted", func() bool { return f.counts() == c.counts })
			assert.Equal(t, f.image, f.status().Booted.Image.String())
			assert.NotContains(t, f.output("cat", "/proc/1/mountinfo"), " /run/nextroot ")
		})
	}
}
