package wholesystem

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/target"
)

// oldEnv names a directory with dayone-daemon and dayone-controller of an earlier version.
const oldEnv = "DAYONE_TEST_OLD"

// version is one of dayone's: where its programs are. base is what hosts run; empty: Debian's stable release. standIns
// are on it.
type version struct {
	agent, controller string
	base              baseimage.Kind
	standIns          []string
}

// versions are the earlier one and this tree's.
func versions(t *testing.T) (old, now version) {
	t.Helper()
	now = version{agent: agentProgram, controller: filepath.Join(t.TempDir(), "dayone-controller")}
	o := program.Options{Package: "dayone.dev/dayone/cmd/dayone-controller"}
	require.NoError(t, program.Build(t.Context(), "", o, now.controller))
	dir := os.Getenv(oldEnv)
	if dir == "" {
		fmt.Fprintf(os.Stderr, "%s: %s names no directory with an earlier dayone-daemon and dayone-controller: "+
			"this tree's programs replace themselves\n", t.Name(), oldEnv)
		return now, now
	}
	old = version{agent: filepath.Join(dir, "dayone-daemon"), controller: filepath.Join(dir, "dayone-controller")}
	for _, name := range []string{old.agent, old.controller} {
		_, err := os.Stat(name)
		require.NoError(t, err)
	}
	return old, now
}

// TestDayoneIsReplacedInTheMiddleOfRollouts upgrades dayone and goes back, each time while nodes are on their way:
// first the controllers, then the agents. No node reboots for it, no config is rendered anew, and no agent refuses a
// plan.
func TestDayoneIsReplacedInTheMiddleOfRollouts(t *testing.T) {
	t.Parallel()
	old, now := versions(t)
	w := newWorldOf(t, old)
	w.configure(worker, "40-nothing", fleet.Content{}) // as in every cluster, a pool has more than one
	w.joinAll(0, 2)
	reasons := w.complaints()
	config := w.configOf(worker)

	w.replaced("old agents, new controllers", config, recipe{mark: "v1"}, daemon.Applying, 1,
		func() { w.controlWith(now) })
	w.replaced("new agents, new controllers", config, recipe{mark: "v2"}, daemon.Rebooting, 1,
		func() { w.agentsOf(now) })

	c := firstContent()
	c.Files["/etc/app/conf"] = "three\n"
	live := w.configure(worker, "50-app", c)
	to := w.replaced("new agents, old controllers", live, recipe{mark: "v2"}, daemon.Applying, 0,
		func() { w.controlWith(old) })
	assert.Equal(t, disruption.LevelReload, w.watch.Foretold(worker, to).Level)
	for _, h := range w.fleet.Of(worker) {
		w.until("restarted app on "+h.Name, func() bool { return w.started(h, "app") == "v1 three" })
	}
	w.replaced("old agents, old controllers", live, recipe{mark: "v3"}, daemon.Draining, 1, func() { w.agentsOf(old) })
	assert.Equal(t, live, w.configOf(worker), "nothing was rendered anew")
	w.within(0, 1)
	assert.Empty(t, reasons(), "no agent complained")
}

// replaced lets a pool's image change, replaces programs as soon as one of its hosts is in a state, and waits until all
// have the image, each with so many reboots.
func (w *world) replaced(what, config string, r recipe, at daemon.State, reboots int, replace func()) target.Target {
	w.t.Helper()
	boots := w.allBoots(worker)
	w.pods(worker, r.mark+"-"+string(at[0]+'a'-'A')+fmt.Sprint(w.builds))
	to := w.build(worker, config, r)
	w.until(what+": a host is "+string(at), func() bool {
		return slices.ContainsFunc(w.fleet.Of(worker), func(h *fleet.Host) bool { return h.State() == at })
	})
	replace()
	w.arrived(what, worker, to)
	w.rebooted(boots, reboots, what)
	assert.Equal(w.t, config, w.configOf(worker), "%s: the pool's config", what)
	return to
}

// controlWith ends the controllers and starts a version's.
func (w *world) controlWith(v version) {
	w.t.Helper()
	require.NoError(w.t, w.controllers.Kill())
	w.controller = v.controller
	w.startControllers()
}

// agentsOf puts a version's agent onto every host and ends the one that runs: systemd starts the new one.
func (w *world) agentsOf(v version) {
	w.t.Helper()
	raw, err := os.ReadFile(v.agent)
	require.NoError(w.t, err)
	for _, h := range w.fleet.Of(worker) {
		at, err := h.Outside(firstboot.DaemonPath)
		require.NoError(w.t, err)
		require.NoError(w.t, os.WriteFile(at+".new", raw, 0o755))
		require.NoError(w.t, os.Rename(at+".new", at))
		w.kill(h)
	}
}

// complaints gathers the reasons of failures in the nodes' records until it is asked for them.
func (w *world) complaints() (all func() []string) {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	var over sync.WaitGroup
	var found []string
	over.Go(func() {
		tick := time.NewTicker(waitEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, h := range w.fleet.Hosts {
				if r := h.Record(ctx).Reason; r != "" && !slices.Contains(found, r) && ctx.Err() == nil {
					found = append(found, r)
				}
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() []string {
		cancel()
		over.Wait()
		return found
	}
}
