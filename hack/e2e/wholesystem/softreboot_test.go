package wholesystem

import (
	"encoding/json"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/target"
)

// stopNotes starts units in the places of kubelet and CRI-O that note when they are stopped, and CRI-O's note of the
// boot.
const stopNotes = `for name in crio kubelet; do
printf '[Service]\nExecStart=/bin/sleep infinity\nExecStop=/bin/sh -c "sleep 1; echo %s >>/var/log/stops"\n' $name \
	>/etc/systemd/system/$name.service
printf '[Install]\nWantedBy=multi-user.target\n' >>/etc/systemd/system/$name.service
systemctl enable --now $name.service
done
mkdir -p /run/crio && echo 1.30 >/run/crio/version`

// TestSoftRebootsOnDay2 brings images to a host whose pool allows soft reboots: it is drained for each and its hardware
// runs on, also over the second one, after which ostree has to be told what runs. Another kernel, and a power cut, boot
// the hardware.
func TestSoftRebootsOnDay2(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, version{agent: agentProgram, base: baseimage.Forky})
	w.joinAll(0, 1)
	h := w.fleet.Of(worker)[0]
	w.rebootPolicy("SoftRequired")
	w.output(h, "sh", "-c", stopNotes)
	id := w.output(h, "cat", "/proc/sys/kernel/random/boot_id")
	for i, mark := range []string{"v1", "v2"} {
		w.pods(worker, mark)
		to := w.build(worker, w.configOf(worker), recipe{mark: mark})
		w.arrived("softly: "+mark, worker, to)
		assert.Equal(t, [2]int{1, i + 1}, w.counts(h), "hardware boots, soft reboots: "+mark)
		assert.Equal(t, "soft", w.lastBoot(h))
		assert.Equal(t, id, w.output(h, "cat", "/proc/sys/kernel/random/boot_id"))
		assert.Equal(t, mark, w.output(h, "cat", "/etc/os-mark"))
		assert.Contains(t, w.output(h, "/usr/local/bin/dayone-daemon", "status"), digestOf(to.Image))
		assert.Zero(t, w.podsLeft(worker), "it was drained")
		w.until("app runs", func() bool { return w.started(h, "app") == "v1 one" })
	}
	assert.Equal(t, "Taken", w.softReboots().Reason)
	assert.Equal(t, "kubelet crio kubelet crio", strings.Join(strings.Fields(w.output(h, "cat", "/var/log/stops")), " "),
		"kubelet first, so that it starts nothing again")
	w.output(h, "sh", "-c", "systemctl is-active kubelet.service crio.service && ! test -e /run/crio/version")

	w.arrived("another kernel", worker, w.build(worker, w.configOf(worker), recipe{mark: "v3", kernel: "another"}))
	assert.Equal(t, 2, w.boots(h))
	assert.Contains(t, w.lastBoot(h), "hard: the deployments differ in the kernel or its initramfs")
	w.until("the pool says so", func() bool { return w.softReboots().Status == corev1.ConditionFalse })
	assert.Contains(t, w.softReboots().Message, h.Name+": the deployments differ in the kernel")

	w.rebootPolicy("SoftIfPossible")
	w.cutAt(h, daemon.Rebooting, w.build(worker, w.configOf(worker), recipe{mark: "v4", kernel: "another"}))
	assert.Equal(t, "v4", w.output(h, "cat", "/etc/os-mark"))
	assert.GreaterOrEqual(t, w.boots(h), 3, "the power cut was one")
	assert.Zero(t, strings.Count(w.output(h, "cat", "/proc/1/mountinfo"), " /run/nextroot "))
}

// TestSoftRebootsOfBootcOnDay2 is the same on a host where the stand-in of bootc deploys: drained, rebooted softly,
// verified. A bootc that does not compare SELinux policies, and an image with another kernel, boot the hardware.
func TestSoftRebootsOfBootcOnDay2(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, version{agent: agentProgram, base: baseimage.Forky, standIns: []string{string(deploy.KindBootc)}})
	w.joinAll(0, 1)
	h := w.fleet.Of(worker)[0]
	w.rebootPolicy("SoftReboot")
	id := w.output(h, "cat", "/proc/sys/kernel/random/boot_id")
	for _, step := range []struct {
		name, before string
		recipe       recipe
		counts       [2]int // hardware boots, soft reboots
		lastBoot     string
	}{
		{"softly", "true", recipe{mark: "v1"}, [2]int{1, 1}, "soft"},
		{"softly once more", "true", recipe{mark: "v2"}, [2]int{1, 2}, "soft"},
		{"another kernel", "true", recipe{mark: "v3", kernel: "another"}, [2]int{2, 2},
			"hard: the deployments differ in the kernel or its initramfs"},
		{"below bootc's floor", "echo 1.11.0 >" + standin.BootcVersionPath, recipe{mark: "v4", kernel: "another"},
			[2]int{3, 2}, "hard: bootc 1.11.0 is older than 1.12"},
	} {
		w.output(h, "sh", "-c", step.before)
		w.pods(worker, step.recipe.mark)
		to := w.build(worker, w.configOf(worker), step.recipe)
		w.arrived(step.name, worker, to)
		assert.Equal(t, step.counts, w.counts(h), step.name)
		assert.Equal(t, step.lastBoot, w.lastBoot(h), step.name)
		assert.Equal(t, step.counts[0] == 1, id == w.output(h, "cat", "/proc/sys/kernel/random/boot_id"), step.name)
		assert.Equal(t, step.recipe.mark, w.output(h, "cat", "/etc/os-mark"), step.name)
		assert.Zero(t, w.podsLeft(worker), "%s: it was drained", step.name)
		assert.Contains(t, w.output(h, "bootc", "status", "--format=json"), digestOf(to.Image), step.name)
		var status deploy.Status
		require.NoError(t, json.Unmarshal([]byte(w.output(h, "/usr/local/bin/dayone-daemon", "status")), &status))
		assert.Equal(t, deploy.KindBootc, status.Kind, step.name)
		assert.Equal(t, digestOf(to.Image), status.Booted.Image.Digest.String(), step.name)
	}
}

// TestWatchReturnsOnDay2 brings an image in which the agent does not start. The watch of the soft reboot, for which the
// test does not wait, boots the hardware into it, and then returns to the image before. The agent there says so and
// stays; another image is taken softly.
func TestWatchReturnsOnDay2(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, version{agent: agentProgram, base: baseimage.Forky})
	w.joinAll(0, 1)
	h := w.fleet.Of(worker)[0]
	has := func(mark string) func() bool {
		return func() bool {
			r, err := h.Node.Exec(t.Context(), "cat", "/etc/os-mark")
			return err == nil && strings.TrimSpace(r.Stdout) == mark
		}
	}
	w.rebootPolicy("SoftIfPossible")
	w.arrived("softly", worker, w.build(worker, w.configOf(worker), recipe{mark: "v1"}))
	bad := w.build(worker, w.configOf(worker), recipe{mark: "v2", agentless: true})
	w.until("runs the image without its agent", has("v2"))
	for _, boots := range []int{2, 3} {
		w.until("the watch waits", func() bool {
			r, err := h.Node.Exec(t.Context(), "systemctl", "is-active", "dayone-soft-reboot-watch.timer")
			return err == nil && r.ExitCode == 0
		})
		require.True(t, has("v2")())
		w.output(h, "systemctl", "start", "--no-block", "dayone-soft-reboot-watch.service")
		w.until("the watch boots the hardware", func() bool { return w.boots(h) == boots })
	}
	w.until("says that it is back", func() bool {
		return strings.HasPrefix(h.Object(t.Context()).Annotations[manifests.AnnotationLastBoot],
			"hard: back in the image before: nothing in the new userspace has verified it")
	})
	assert.True(t, has("v1")())
	w.until("is degraded", func() bool {
		return strings.Contains(h.Object(t.Context()).Annotations[manifests.AnnotationReason],
			"the node went back from "+bad.Config)
	})
	assert.Contains(t, w.output(h, "cat", "/var/lib/dayone/soft-reboot-failures.json"), digestOf(bad.Image))
	assert.Equal(t, 3, w.boots(h), "it does not try again by itself")

	w.arrived("another image", worker, w.build(worker, w.configOf(worker), recipe{mark: "v3"}))
	assert.Equal(t, "soft", h.Object(t.Context()).Annotations[manifests.AnnotationLastBoot])
}

// rebootPolicy annotates the workers' pool.
func (w *world) rebootPolicy(policy string) {
	w.t.Helper()
	change(w, pool(worker), func(p *mcfgv1.MachineConfigPool) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[manifests.AnnotationRebootPolicy] = policy
	})
}

// counts are a host's hardware boots and soft reboots.
func (w *world) counts(h *fleet.Host) [2]int {
	w.t.Helper()
	soft, err := h.Node.SoftReboots()
	require.NoError(w.t, err)
	return [2]int{w.boots(h), soft}
}

// lastBoot is what a host's node says of how it came into what it runs.
func (w *world) lastBoot(h *fleet.Host) string {
	w.t.Helper()
	return h.Object(w.t.Context()).Annotations[manifests.AnnotationLastBoot]
}

// softReboots is the pool's condition.
func (w *world) softReboots() mcfgv1.MachineConfigPoolCondition {
	w.t.Helper()
	p := pool(worker)
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(p), p))
	for _, c := range p.Status.Conditions {
		if c.Type == "SoftReboots" {
			return c
		}
	}
	return mcfgv1.MachineConfigPoolCondition{}
}

// cutAt takes a host's power when its agent is in a state on the way to a target, and waits until it has arrived.
func (w *world) cutAt(h *fleet.Host, s daemon.State, to target.Target) {
	w.t.Helper()
	w.until("is "+string(s), func() bool { return h.State() == s })
	require.NoError(w.t, w.cut(h))
	w.arrived("after a power cut", worker, to)
}
