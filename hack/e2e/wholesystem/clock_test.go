package wholesystem

import (
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/hack/testnode/clock"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

const (
	// hours are within what certificates bear here, years are not: who is so far off reaches neither API nor registry.
	hours = 3 * time.Hour
	years = 10 * 365 * 24 * time.Hour
	// yearsLast is how long a clock stays years off before somebody sets it right.
	yearsLast = time.Second
	// holdDrain is how long a pod keeps a node from being drained after the controllers' clock has jumped.
	holdDrain = 2 * time.Second
	// holds keeps a pod from going.
	holds = "dayone.dev/test-holds"
	// drainFailed is the reason of the event of a drain that has taken too long.
	drainFailed = "DrainFailed"
)

// wrong is a rollout in which clocks jump.
type wrong struct {
	*world
	last map[*fleet.Host]daemon.State
	// since is when a host's clock was put years off.
	since map[*fleet.Host]time.Time
	jumps map[time.Duration]int
	// held is the node whose drain takes while the controllers' clock jumps, since when; free tells that its pod may go.
	held  *fleet.Host
	began time.Time
	free  bool
	// ahead is how far ahead of this machine's clock a time upon a MachineConfigNode was seen.
	ahead time.Duration
}

// wrongClocks builds a config and brings it while the wall clocks of agents jump with every change of their states,
// hours ahead and back, and years, and the controllers' in the middle of a drain, too. What is asked for comes as if
// all clocks were right.
func (w *world) wrongClocks(config string, r recipe) (to target.Target) {
	c := &wrong{world: w, last: map[*fleet.Host]daemon.State{}, since: map[*fleet.Host]time.Time{},
		jumps: map[time.Duration]int{}}
	hosts := w.fleet.Of(worker)
	w.pods(worker, "clock")
	for _, h := range hosts {
		c.hold(h, holds)
	}
	to = w.build(worker, config, r) // when the pods are there that are to leave
	w.until("clocks jumped, and everybody has the target", func() bool {
		done := true
		for _, h := range hosts {
			done = c.look(h) && h.Has(w.t.Context(), to) && done
		}
		return done
	})
	for _, h := range hosts {
		c.clocks.Set(h, 0)
	}
	c.setControllers(0)
	assert.True(w.t, c.free, "a drain was held")
	w.note("jumps: %v; a MachineConfigNode's time was %s ahead", c.jumps, c.ahead.Round(time.Second))
	for _, by := range []time.Duration{hours, -hours, years} {
		assert.Positive(w.t, c.jumps[by], "a jump by %s", by)
	}
	assert.Greater(w.t, c.ahead, hours/2, "agents had the clocks that they were given")
	assert.Zero(w.t, w.podsLeft(worker), "each node was drained")
	assert.Zero(w.t, c.failedDrains(), "a clock that jumps makes no drain take longer")
	c.sane(hosts)
	return to
}

// look gives a host another clock when its agent has come to another state, and sets one right that is years off. It
// tells whether the host's clock is one that reaches the API.
func (c *wrong) look(h *fleet.Host) bool {
	if since, off := c.since[h]; off && time.Since(since) > yearsLast {
		c.clocks.Set(h, 0)
		delete(c.since, h)
	}
	c.seen(h)
	s := h.State()
	if s == daemon.Draining {
		c.drain(h)
	}
	if s != c.last[h] && s != "" && s != daemon.Idle {
		c.last[h] = s
		by := []time.Duration{hours, years, -hours}[(c.jumps[hours]+c.jumps[years]+c.jumps[-hours])%3]
		c.jumps[by]++
		c.clocks.Set(h, by)
		delete(c.since, h)
		if by == years {
			c.since[h] = time.Now()
		}
	}
	_, off := c.since[h]
	return !off
}

// drain lets the first node's drain wait for a pod, puts the controllers' clock ahead in the middle of it, and back at
// its end.
func (c *wrong) drain(h *fleet.Host) {
	switch {
	case c.held == nil && c.leaving(h):
		c.held, c.began = h, time.Now()
		c.setControllers(hours)
		c.nudge(h)
	case c.held == h && !c.free && time.Since(c.began) > holdDrain:
		c.free = true
		c.setControllers(-hours)
		c.hold(h, "")
	case c.held != nil && c.held != h:
		c.hold(h, "")
	}
}

// leaving tells that a host's pod was told to go, and is held.
func (c *wrong) leaving(h *fleet.Host) bool {
	p := podOf(h, "clock")
	return c.env.Client.Get(c.t.Context(), client.ObjectKeyFromObject(p), p) == nil && p.DeletionTimestamp != nil
}

// nudge lets the drain controller look at a node at once.
func (c *wrong) nudge(h *fleet.Host) {
	n := h.Object(c.t.Context())
	was := n.DeepCopy()
	n.Labels["dayone.dev/test-nudge"] = "1"
	require.NoError(c.t, c.env.Client.Patch(c.t.Context(), n, client.MergeFrom(was)))
}

// hold keeps a host's pod from going, or lets it go.
func (c *wrong) hold(h *fleet.Host, finalizer string) {
	patch := fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer)
	if finalizer == "" {
		patch = `{"metadata":{"finalizers":null}}`
	}
	err := c.env.Client.Patch(c.t.Context(), podOf(h, "clock"), client.RawPatch("application/merge-patch+json",
		[]byte(patch)))
	require.NoError(c.t, client.IgnoreNotFound(err))
}

func (c *wrong) setControllers(by time.Duration) {
	require.NoError(c.t, clock.Shift(c.controllers.PID(), by))
}

// seen remembers how far ahead times upon a host's MachineConfigNode are.
func (c *wrong) seen(h *fleet.Host) {
	o := &mcfgv1.MachineConfigNode{}
	if c.env.Client.Get(c.t.Context(), client.ObjectKey{Name: h.Name}, o) != nil {
		return
	}
	for _, condition := range o.Status.Conditions {
		c.ahead = max(c.ahead, time.Until(condition.LastTransitionTime.Time))
	}
}

func (c *wrong) failedDrains() (n int) {
	var all eventsv1.EventList
	require.NoError(c.t, c.env.Client.List(c.t.Context(), &all))
	for _, e := range all.Items {
		if e.Reason == drainFailed {
			n++
		}
	}
	return n
}

// sane asserts that what is written down of the way says that it took some time, and no years.
func (c *wrong) sane(hosts []*fleet.Host) {
	for _, h := range hosts {
		for level, seconds := range rollout.TimesOf(h.Object(c.t.Context()).Annotations).Seconds {
			assert.Positive(c.t, seconds, "%s: %s", h.Name, level)
			assert.Less(c.t, time.Duration(seconds)*time.Second, 2*hours, "%s: %s", h.Name, level)
		}
	}
}
