package wholesystem

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// slowPause is the registry's before each part of a blob, where an import is to take a while.
const slowPause = 100 * time.Millisecond

// liveChange changes only the config of layered nodes, and policies cover that: the running system gets it, and so does
// the image of the next boot, without a reboot.
func (w *world) liveChange(was target.Target) target.Target {
	c := secondContent()
	c.Files["/etc/app/conf"] = "three\n"
	var to target.Target
	w.pods(worker, "live")
	w.undisturbed("live", func() {
		config := w.configure(worker, "50-app", c)
		to = w.build(worker, config, recipe{mark: "v1"})
		w.arrived("live", worker, to)
		assert.Equal(w.t, disruption.LevelReload, w.watch.Foretold(worker, to).Level)
	})
	for _, h := range w.fleet.Of(worker) {
		w.until("restarted app on "+h.Name, func() bool { return w.started(h, "app") == "v2 three" })
		assert.NotContains(w.t, w.output(h, "/usr/local/bin/dayone-daemon", "status"), digestOf(was.Image)+" (staged)")
	}
	// Whenever a node reboots next it boots the image that has the config: nothing of it is the node's own then.
	h := w.fleet.Of(worker)[0]
	boots := w.boots(h)
	w.watch.Excuse(h, true)
	require.NoError(w.t, h.Node.Reboot(w.t.Context()))
	w.watch.Excuse(h, false)
	w.until("app runs on "+h.Name, func() bool { return w.started(h, "app") == "v2 three" })
	assert.Contains(w.t, w.output(h, "/usr/local/bin/dayone-daemon", "status"), digestOf(to.Image))
	assert.NotContains(w.t, w.output(h, "ostree", "admin", "config-diff"), " app/", "the image has what was written live")
	w.arrived("rebooted by hand", worker, to)
	assert.Equal(w.t, boots+1, w.boots(h))
	return to
}

func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

// faultsOfNodes changes the Containerfile's part, two nodes at a time. Agents are killed at every state they come to;
// the first host that imports has its power cut then, and one host has its power cut in every state.
func (w *world) faultsOfNodes(was target.Target) target.Target {
	w.several(2)
	boots := w.allBoots(worker)
	w.pods(worker, "killed")
	w.registry.Spoil(w.registry.Slowly(10, slowPause)) // a second for each layer
	to := w.build(worker, was.Config, recipe{mark: "v2", noise: 1 << 20})
	victims := w.fleet.Of(worker)
	cutEverywhere := victims[len(victims)-1]
	var mu sync.Mutex
	killed, cuts := map[daemon.State]int{}, map[*fleet.Host]int{}
	stop := w.eachState(victims, func(h *fleet.Host, s daemon.State) error {
		mu.Lock()
		cut := h == cutEverywhere || s == daemon.Applying && len(cuts) == 0
		if cut {
			cuts[h]++
		}
		mu.Unlock()
		if cut {
			return w.cut(h)
		}
		if w.kill(h) {
			mu.Lock()
			killed[s]++
			mu.Unlock()
		}
		return nil
	})
	w.until("killed in every state", func() bool {
		return !slices.ContainsFunc(victims, func(h *fleet.Host) bool { return !h.Has(w.t.Context(), to) })
	})
	stop()
	w.registry.Spoil(nil)
	w.note("killed: %v, power cuts: %v", killed, len(cuts))
	assert.GreaterOrEqual(w.t, len(killed), 3, "%v", killed) // a machine that stalls does not see the short ones
	assert.GreaterOrEqual(w.t, cuts[cutEverywhere], 2)
	for h, n := range boots {
		more := w.boots(h) - n - cuts[h]
		assert.LessOrEqual(w.t, more, 1, "one reboot of the agent's on %s", h.Name)
		if h != cutEverywhere { // its last cut may have come when the reboot had nothing left to do
			assert.Equal(w.t, 1, more, "one reboot of the agent's on %s", h.Name)
		}
		w.reboots += more
		require.NoError(w.t, h.Node.WaitReady(w.t.Context())) // its last cut may just have been
		assert.Equal(w.t, "v2", w.output(h, "cat", "/etc/os-mark"))
	}
	assert.Zero(w.t, w.podsLeft(worker))
	return to
}

// kill ends the agent as a crash does.
func (w *world) kill(h *fleet.Host) bool {
	pids, err := h.AgentPIDs()
	killed := false
	for _, pid := range pids {
		killed = syscall.Kill(pid, syscall.SIGKILL) == nil || killed
	}
	return err == nil && killed
}

// cut takes a host's power and gives it back. That it is off meanwhile is the test's doing.
func (w *world) cut(h *fleet.Host) error {
	w.watch.Excuse(h, true)
	defer w.watch.Excuse(h, false)
	if err := h.Node.PowerCut(w.t.Context()); err != nil {
		return err
	}
	return h.Node.Start(w.t.Context())
}

// stateEvery is how often a host's journal is read where no state of its agent is to be missed.
const stateEvery = 2 * time.Millisecond

// eachState does something for each state that the agents of hosts come to, hosts beside each other, until stop is
// called.
func (w *world) eachState(hosts []*fleet.Host, do func(*fleet.Host, daemon.State) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, h := range hosts {
		all.Go(func() {
			tick := time.NewTicker(stateEvery)
			defer tick.Stop()
			for last := daemon.State(""); ctx.Err() == nil; <-tick.C {
				s := h.State()
				if s == last || s == daemon.Idle || s == "" {
					continue
				}
				last = s
				assert.NoError(w.t, do(h, s), "%s in state %s", h.Name, s)
			}
		})
	}
	stop = func() {
		cancel()
		all.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// brokenImage fails on the first nodes, which say why, and goes no further; a corrected one goes to those nodes first,
// and then on, while clocks jump.
func (w *world) brokenImage(was target.Target) target.Target {
	w.several(1)
	boots := w.allBoots(worker)
	broken := w.build(worker, was.Config, recipe{mark: "broken", kernelless: true})
	var failed *fleet.Host
	w.until("a node says what is wrong with the image", func() bool {
		for _, h := range w.fleet.Of(worker) {
			if r := h.Record(w.t.Context()); r.State == nodestate.StateDegraded && strings.Contains(r.Reason, "vmlinuz") {
				failed = h
				return true
			}
		}
		return false
	})
	for _, h := range w.fleet.Of(worker) {
		if h != failed {
			assert.Equal(w.t, was.Image, h.Record(w.t.Context()).DesiredImage, "the others are told nothing")
		}
	}
	assert.Equal(w.t, disruption.LevelReboot, w.watch.Foretold(worker, broken).Level)
	w.rebooted(boots, 0, "nothing reboots into it")
	to := w.wrongClocks(was.Config, recipe{mark: "v3"})
	w.arrived("corrected", worker, to)
	w.rebooted(boots, 1, "corrected")
	return to
}

// faultsAround takes away, one after the other while a node imports: the registry, the controllers, the API server.
// Each node fails or waits, and goes on.
func (w *world) faultsAround(was target.Target) target.Target {
	w.ahead("0") // each node has something to import when its turn comes
	defer w.ahead("")
	boots := w.allBoots(worker)
	w.registry.Spoil(w.registry.Slowly(300, slowPause)) // the import ends by a kill, however late a report comes
	to := w.build(worker, was.Config, recipe{mark: "v4", noise: 1 << 20})
	h := w.importing(to)
	w.note("%s", h.Object(w.t.Context()).Annotations[manifests.AnnotationAgentProgress])
	w.registry.Spoil(func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	require.NoError(w.t, w.controllers.Kill())
	require.True(w.t, w.kill(h), "an agent that imports runs")
	w.until(h.Name+" says that the registry is away", func() bool {
		r := h.Record(w.t.Context())
		return r.State == nodestate.StateDegraded && strings.Contains(r.Reason, "503")
	})
	w.registry.Spoil(nil)
	w.until(h.Name+" goes on without the controllers", func() bool { return h.State() == daemon.Uncordoning })
	w.startControllers()
	w.until(h.Name+" is given back", func() bool { return h.Has(w.t.Context(), to) })

	w.registry.Spoil(w.registry.Slowly(45, slowPause))
	h = w.importing(to)
	n := w.boots(h)
	w.apiDown()
	w.registry.Spoil(nil)
	w.until(h.Name+" boots its image without the API", func() bool {
		return w.boots(h) == n+1 &&
			h.State() == daemon.Uncordoning
	})
	w.apiUp()
	w.arrived("after all faults", worker, to)
	w.rebooted(boots, 1, "one for each node")
	return to
}

// importing waits for a node that says how many bytes of a target's layers it has.
func (w *world) importing(to target.Target) (found *fleet.Host) {
	w.t.Helper()
	w.until("bytes of layers on a node", func() bool {
		for _, h := range w.fleet.Of(worker) {
			n := h.Object(w.t.Context())
			if n != nil && n.Annotations[manifests.AnnotationDesiredImage] == to.Image &&
				strings.Contains(n.Annotations[manifests.AnnotationAgentProgress], "MB") {
				found = h
				return true
			}
		}
		return false
	})
	return found
}

// backToConfig gives the layered workers the config that the plain ones had, live.
func (w *world) backToConfig(was target.Target) {
	w.undisturbed("back", func() {
		config := w.configure(worker, "50-app", secondContent())
		w.arrived("back", worker, w.build(worker, config, recipe{mark: "v4", noise: 1 << 20}))
	})
	assert.NotEqual(w.t, was.Config, w.configOf(worker))
}
