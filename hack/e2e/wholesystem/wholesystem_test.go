package wholesystem

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// Two pools live through their Day 2; what comes first is what later steps start from, because making and booting hosts
// is what takes time.
func TestDay2OnRealHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.joinAll(2, 3)
	w.quietChange()
	config := w.configOnly()
	w.mirrors(config)
	w.within(1, 1)

	before := w.snapshot()
	small := w.joinTiny()
	w.optIn(master)
	now := w.optIn(worker)
	w.within(1, 1)
	w.tinyOptedIn(small)
	now = w.liveChange(now)
	w.within(1, 1)
	now = w.faultsOfNodes(now)
	w.within(1, 2)
	now = w.brokenImage(now)
	now = w.faultsAround(now)
	w.within(1, 1)
	w.backToConfig(now)
	w.optOut(master, before)
	w.optOut(worker, before)
	w.within(1, 1)
	assert.Greater(t, w.watch.Samples(), 50)
	assert.LessOrEqual(t, w.reboots, w.watch.Reboots(), "each reboot was in a plan")
	w.memory()
}

// within asserts that since the last call no more nodes were unavailable than allowed; the control plane's are one at a
// time whatever a pool says.
func (w *world) within(masters, workers int) {
	w.t.Helper()
	assert.LessOrEqual(w.t, w.watch.Worst(master), masters, "masters unavailable at once")
	assert.LessOrEqual(w.t, w.watch.Worst(worker), workers, "workers unavailable at once")
}

func firstContent() fleet.Content {
	return fleet.Content{Files: map[string]string{"/etc/app/conf": "one\n", "/etc/app/gone": "one\n"},
		Units: map[string]string{"app.service": fleet.Service("v1", "/etc/app/conf")}}
}

func secondContent() fleet.Content {
	return fleet.Content{Files: map[string]string{"/etc/app/conf": "two\n", "/etc/app/new": "two\n"},
		Units: map[string]string{"app.service": fleet.Service("v2", "/etc/app/conf"),
			"late.service": fleet.Service("v2", "/etc/app/new")}}
}

// joinAll makes hosts as Ignition and first boot leave them, boots them, and sees them in their pools.
func (w *world) joinAll(masters, workers int) {
	ctx, t := w.t.Context(), w.t
	for pool, n := range map[string]int{master: masters, worker: workers} {
		c := firstContent()
		mc := w.config(w.configure(pool, "50-app", c))
		for i := range n {
			h := w.join(pool[:1]+strconv.Itoa(i), pool)
			for name, text := range c.Files {
				require.NoError(t, h.Put(ctx, fleet.File{Path: name, Text: text, Mode: 0o644}))
			}
			for name, text := range c.Units {
				require.NoError(t, h.Put(ctx, fleet.File{Path: "/etc/systemd/system/" + name, Text: text, Mode: 0o644}))
				require.NoError(t, h.Enable(ctx, name))
			}
			root, err := h.Outside("/")
			require.NoError(t, err)
			require.NoError(t, nodedisk.WriteCurrent(root, nodedisk.Current{Config: mc}))
			require.NoError(t, h.Node.Start(ctx))
		}
	}
	for _, h := range w.fleet.Hosts {
		w.until("joined: "+h.Name, func() bool { return h.Has(ctx, target.Target{Config: w.configOf(h.Pool)}) })
		require.NoError(t, h.Node.WaitReady(ctx))
		w.until("app runs on "+h.Name, func() bool { return w.started(h, "app") == "v1 one" })
	}
	w.within(masters, workers) // those that were not on yet
}

// snapshot is all of each host's /etc, and its node's annotations: of the last drain, of the last plan, of the time
// that it took and of the ControllerConfig only that there was one.
func (w *world) snapshot() map[*fleet.Host]string {
	out := map[*fleet.Host]string{}
	for _, h := range w.withSystemd() {
		etc := w.output(h, "sh", "-c",
			`cd /etc && find . \( -type f -o -type l \) ! -name .updated -printf '%p %M %U %G %l\n' | sort &&
			find . -type f ! -name .updated ! -path './machine-config-daemon/currentconfig' | sort | xargs sha256sum`)
		annotations := h.Object(w.t.Context()).Annotations
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			_, name, _ := strings.Cut(key, "/")
			switch name {
			case "last-boot": // how the host came into what it runs: the boots are counted elsewhere
			case "desiredDrain", "lastAppliedDrain", "plan", "update-times", "lastSyncedControllerConfigResourceVersion":
				etc += "\n" + key
			default:
				etc += "\n" + key + "=" + annotations[key]
			}
		}
		out[h] = etc
	}
	return out
}

// optIn brings a pool's first layered image: one node after the other is drained, rebooted once and given back.
func (w *world) optIn(pool string) target.Target {
	w.t.Helper()
	boots := w.allBoots(pool)
	w.pods(pool, "in")
	to := w.build(pool, w.configOf(pool), recipe{mark: "v1"})
	w.arrived("opted in", pool, to)
	w.rebooted(boots, 1, "opted in")
	for h := range boots {
		assert.Equal(w.t, "v1", w.output(h, "cat", "/etc/os-mark"))
		assert.Equal(w.t, nodestate.DrainRequest(nodestate.Uncordon, to.Config), h.Record(w.t.Context()).LastAppliedDrain)
		assert.NotContains(w.t, w.output(h, "ostree", "admin", "config-diff"), " app/",
			"what the agent wrote is what the image has")
		w.until("app runs on "+h.Name, func() bool { return w.started(h, "app") == "v2 two" })
	}
	assert.Zero(w.t, w.podsLeft(pool), "each was drained")
	return to
}

// optOut goes back to the base OS with one reboot for each node and leaves nothing.
func (w *world) optOut(pool string, before map[*fleet.Host]string) {
	w.t.Helper()
	boots := w.allBoots(pool)
	w.leave(pool)
	w.arrived("opted out", pool, target.Target{Config: w.configOf(pool)})
	w.rebooted(boots, 1, "opted out")
	_, digest, _ := strings.Cut(w.stock, "@")
	for h := range boots {
		w.until("app runs on "+h.Name, func() bool { return w.started(h, "app") == "v2 two" })
		w.healthy(h)
		assert.Contains(w.t, w.output(h, "/usr/local/bin/dayone-daemon", "status"), digest)
		assert.Equal(w.t, "enabled", w.output(h, "systemctl", "is-enabled", "late.service"))
	}
	var after map[*fleet.Host]string
	same := func() bool { // who has brought a node back clears what it wrote a moment later
		after = w.snapshot()
		return !slices.ContainsFunc(w.fleet.Of(pool), func(h *fleet.Host) bool { return after[h] != before[h] })
	}
	for limit := time.Now().Add(time.Minute); !same() && time.Now().Before(limit); {
		time.Sleep(waitEvery)
	}
	for h := range boots {
		assert.Equal(w.t, before[h], after[h], "%s is as it was", h.Name)
	}
}

// leave takes a pool's MachineOSConfig away.
func (w *world) leave(pool string) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(),
		&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}}))
}

// several lets so many workers be unavailable at once.
func (w *world) several(n int) {
	w.t.Helper()
	change(w, pool(worker), func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(int32(n))) })
}

// ahead says how many workers may fetch their image before their turn; empty: as many as the controller lets.
func (w *world) ahead(limit string) {
	w.t.Helper()
	change(w, pool(worker), func(p *mcfgv1.MachineConfigPool) {
		if limit == "" {
			delete(p.Annotations, manifests.AnnotationPrefetchLimit)
			return
		}
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[manifests.AnnotationPrefetchLimit] = limit
	})
}

// maxOwnMemory is what an idle agent may have to itself, in kB. What it shares with the page cache, its own program, is
// the kernel's to keep or to drop.
const maxOwnMemory = 20 << 10

// memory looks at the agents' when all is done: what their node came up with, having nothing to do since.
func (w *world) memory() {
	for _, h := range w.withSystemd() {
		figures := map[string]int{}
		for _, line := range strings.Split(w.agentStatus(h), "\n") {
			if name, value, found := strings.Cut(line, ":"); found && (name == "VmRSS" || name == "RssAnon") {
				kB, err := strconv.Atoi(strings.Fields(value)[0])
				require.NoError(w.t, err)
				figures[name] = kB
			}
		}
		w.note("%s: agent's memory in kB: %v", h.Name, figures)
		assert.Less(w.t, figures["RssAnon"], maxOwnMemory)
	}
}

// agentStatus is what the kernel says of the agent's process, which may just be starting.
func (w *world) agentStatus(h *fleet.Host) (status string) {
	w.until("agent runs on "+h.Name, func() bool {
		pids, err := h.AgentPIDs()
		if err != nil || len(pids) != 1 {
			return false
		}
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(pids[0]) + "/status")
		status = string(raw)
		return err == nil && strings.Contains(status, "Name:\tdayone-daemon") && strings.Contains(status, "RssAnon")
	})
	return status
}
