package wholesystem

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/nodestate"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// slowPause is the registry's before each part of a blob, where an import is to take a while.
const slowPause = 100 * time.Millisecond

// One pool lives through its Day 2; what comes first is what later steps start from, because making and booting hosts is what takes time.
func TestDay2OnRealHosts(t *testing.T) {
	w := newWorld(t, 2)
	w.join()
	w.configOnly()
	before := w.snapshot()
	w.sample()
	first := w.optIn()
	w.killedEverywhere(first)
	w.brokenImage()
	w.apiAway()
	w.optOut(before)
	assert.LessOrEqual(t, w.worst.Load(), int32(1), "never more unavailable than allowed")
	assert.Greater(t, w.samples.Load(), int32(50))
	w.memory()
}

// maxOwnMemory is what an idle agent may have to itself, in kB. What it shares with the page cache, its own program, is the kernel's to
// keep or to drop.
const maxOwnMemory = 20 << 10

// memory looks at the agents' when all is done: what their node came up with, having nothing to do since.
func (w *world) memory() {
	for _, h := range w.hosts {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(h.agentPID()) + "/status")
		require.NoError(w.t, err)
		figures := map[string]int{}
		for _, line := range strings.Split(string(status), "\n") {
			if name, value, found := strings.Cut(line, ":"); found && (name == "VmRSS" || name == "RssAnon") {
				figures[name], err = strconv.Atoi(strings.Fields(value)[0])
				require.NoError(w.t, err)
			}
		}
		w.t.Logf("%s: agent's memory in kB: %v", h.name, figures)
		assert.Less(w.t, figures["RssAnon"], maxOwnMemory)
	}
}

// arrived waits until every node has a target and says so.
func (w *world) arrived(what, config, image string) {
	w.t.Helper()
	for _, h := range w.hosts {
		w.until(what+": "+h.name, func() bool {
			r := h.record()
			return r.Converged() && r.CurrentConfig == config && r.CurrentImage == image && r.Reason == "" && !h.object().Spec.Unschedulable
		})
	}
}

func (w *world) join() {
	mc := w.render("rendered-worker-1", firstContent())
	for _, h := range w.hosts {
		h.install(firstContent(), mc)
		require.NoError(w.t, h.node.Start(w.t.Context()))
	}
	w.aim("rendered-worker-1")
	w.arrived("joined", "rendered-worker-1", "")
	for _, h := range w.hosts {
		require.NoError(w.t, h.node.WaitReady(w.t.Context()))
		w.until("app runs on "+h.name, func() bool { return h.started("app") == "v1 one" })
	}
}

// started is what a service was started with.
func (h *host) started(unit string) string {
	r, err := h.node.Exec(h.w.t.Context(), "cat", "/run/"+unit)
	if err != nil || r.ExitCode != 0 {
		return ""
	}
	return strings.TrimSpace(r.Stdout)
}

// configOnly changes files and units of plain nodes: real systemd does what the policies say, and nothing reboots.
func (w *world) configOnly() {
	w.render("rendered-worker-2", secondContent())
	w.aim("rendered-worker-2")
	w.arrived("config only", "rendered-worker-2", "")
	for _, h := range w.hosts {
		assert.Equal(w.t, 1, h.boots(), "no reboot")
		assert.Empty(w.t, h.record().DesiredDrain, "no drain")
		w.until("restarted app on "+h.name, func() bool { return h.started("app") == "v2 two" })
		w.until("new unit on "+h.name, func() bool { return h.started("late") == "v2 two" })
		assert.Equal(w.t, "enabled", h.output("systemctl", "is-enabled", "late.service"))
		assert.Equal(w.t, "no", h.output("sh", "-c", "test -e /etc/app/gone && echo yes || echo no"))
		assert.Equal(w.t, "running", h.output("systemctl", "is-system-running", "--wait"))
	}
}

// snapshot is all of each host's /etc, and its node's annotations but for the last drain.
func (w *world) snapshot() (out []string) {
	for _, h := range w.hosts {
		etc := h.output("sh", "-c", `cd /etc && find . \( -type f -o -type l \) ! -name .updated -printf '%p %M %U %G %l\n' | sort && find . -type f ! -name .updated ! -path './machine-config-daemon/currentconfig' | sort | xargs sha256sum`)
		annotations := h.object().Annotations
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if !strings.HasSuffix(key, "/desiredDrain") && !strings.HasSuffix(key, "/lastAppliedDrain") {
				etc += "\n" + key + "=" + annotations[key]
			}
		}
		out = append(out, etc)
	}
	return out
}

// optIn brings the first layered image: one node after the other is drained, rebooted once and given back.
func (w *world) optIn() string {
	image := w.image("v1", secondContent(), 0)
	w.pods("in")
	w.layer("one", "rendered-worker-2", image)
	w.arrived("opted in", "rendered-worker-2", image)
	for _, h := range w.hosts {
		assert.Equal(w.t, 2, h.boots(), "one reboot")
		assert.Equal(w.t, "v1", h.output("cat", "/etc/os-mark"))
		assert.Equal(w.t, nodestate.DrainRequest(nodestate.Uncordon, "rendered-worker-2"), h.record().LastAppliedDrain)
		assert.NotContains(w.t, h.output("ostree", "admin", "config-diff"), " app/", "what the agent wrote is what the image has")
		w.until("app runs on "+h.name, func() bool { return h.started("app") == "v2 two" })
	}
	assert.Zero(w.t, w.podsLeft(), "each was drained")
	return image
}

// killedEverywhere kills the agents whenever they come to another state, and takes one host's power in the middle of the import.
func (w *world) killedEverywhere(before string) {
	image := w.image("v2", secondContent(), 1<<20)
	w.registry.Spoil(w.registry.Slowly(20, slowPause)) // two seconds for each layer
	w.pods("killed")
	w.layer("two", "rendered-worker-2", image)
	killed := map[daemon.State]int{}
	last := map[string]daemon.State{}
	cut := ""
	w.until("killed in every state", func() bool {
		done := true
		for _, h := range w.hosts {
			r := h.record()
			done = done && r.Converged() && r.CurrentImage == image && !h.object().Spec.Unschedulable
			s := h.state()
			if s == last[h.name] || s == daemon.Idle || s == "" {
				continue
			}
			if pid := h.agentPID(); pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed[h.state()]++
				last[h.name] = s
			}
			if s == daemon.Applying && cut == "" {
				cut = h.name
				require.NoError(w.t, h.node.PowerCut(w.t.Context()))
				require.NoError(w.t, h.node.Start(w.t.Context()))
			}
		}
		return done
	})
	w.registry.Spoil(nil)
	w.t.Logf("killed: %v, power cut: %s", killed, cut)
	assert.GreaterOrEqual(w.t, len(killed), 3, "%v", killed) // a busy machine does not see the short ones
	assert.NotEmpty(w.t, cut)
	for _, h := range w.hosts {
		want := 3
		if h.name == cut {
			want++
		}
		assert.Equal(w.t, want, h.boots(), "one reboot of the agent's on %s", h.name)
		assert.Equal(w.t, "v2", h.output("cat", "/etc/os-mark"))
	}
	assert.Zero(w.t, w.podsLeft())
	assert.NotEqual(w.t, before, image)
}

// brokenImage halts at the first node, which says why; a corrected image goes to that node first, and then on.
func (w *world) brokenImage() {
	boots := w.allBoots()
	w.layer("broken", "rendered-worker-2", w.unbootable())
	var failed *host
	w.until("a node says what is wrong with the image", func() bool {
		for _, h := range w.hosts {
			if r := h.record(); r.State == nodestate.StateDegraded && strings.Contains(r.Reason, "bootable") {
				failed = h
				return true
			}
		}
		return false
	})
	for _, h := range w.hosts {
		if h != failed {
			assert.True(w.t, h.record().Converged() || h.record().DesiredImage == h.record().CurrentImage, "the others keep what they have")
		}
	}
	assert.Equal(w.t, boots, w.allBoots(), "nothing rebooted into it")
	image := w.image("v3", secondContent(), 0)
	w.layer("three", "rendered-worker-2", image)
	w.arrived("corrected", "rendered-worker-2", image)
	assert.Equal(w.t, boots+len(w.hosts), w.allBoots(), "one reboot for each")
}

func (w *world) allBoots() (sum int) {
	for _, h := range w.hosts {
		sum += h.boots()
	}
	return sum
}

// apiAway ends the API server while a node imports: it goes on to its reboot and tells when the API is back. Its progress is on the node.
func (w *world) apiAway() {
	boots := w.allBoots()
	image := w.image("v4", secondContent(), 1<<20)
	w.registry.Spoil(w.registry.Slowly(150, slowPause)) // longer than two reports need
	w.layer("four", "rendered-worker-2", image)
	var h *host
	w.until("bytes of layers on the node", func() bool {
		for _, h = range w.hosts {
			if n := h.object(); n != nil && strings.Contains(n.Annotations[manifests.AnnotationAgentProgress], "MB") {
				return true
			}
		}
		return false
	})
	w.t.Log(h.object().Annotations[manifests.AnnotationAgentProgress])
	was := h.boots()
	w.apiDown()
	w.registry.Spoil(nil)
	w.until(h.name+" boots its image without the API", func() bool { return h.boots() == was+1 && h.state() == daemon.Uncordoning })
	w.apiUp()
	w.arrived("after the API was away", "rendered-worker-2", image)
	assert.Equal(w.t, boots+len(w.hosts), w.allBoots())
}

// optOut goes back to the stock OS with one reboot for each node and leaves nothing.
func (w *world) optOut(before []string) {
	boots := w.allBoots()
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(), &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}}))
	w.arrived("opted out", "rendered-worker-2", "")
	assert.Equal(w.t, boots+len(w.hosts), w.allBoots(), "one reboot for each")
	_, digest, _ := strings.Cut(w.stock, "@")
	after := w.snapshot()
	for i, h := range w.hosts {
		assert.Equal(w.t, before[i], after[i], "%s is as it was", h.name)
		assert.Contains(w.t, h.output("/usr/local/bin/dayone-daemon", "status"), digest)
		assert.Equal(w.t, "enabled", h.output("systemctl", "is-enabled", "late.service"))
		w.until("app runs on "+h.name, func() bool { return h.started("app") == "v2 two" })
		assert.Equal(w.t, "running", h.output("systemctl", "is-system-running", "--wait"))
	}
}
