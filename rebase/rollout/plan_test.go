package rollout_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

var (
	now    = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) // a Monday
	oldOne = target.Target{Config: "rendered-worker-1", Image: "r.example.com/os@sha256:1"}
	newOne = target.Target{Config: "rendered-worker-2", Image: "r.example.com/os@sha256:2"}
)

func limit(s string) *intstr.IntOrString { v := intstr.Parse(s); return &v }

type change func(*rollout.Node)

// at makes a node that has a target and is done; changes make it something else.
func at(name string, t target.Target, changes ...change) rollout.Node {
	n := rollout.Node{Name: name, Created: now.AddDate(-1, 0, 0), UpdatedSince: now.Add(-24 * time.Hour),
		Record: nodestate.Record{CurrentConfig: t.Config, DesiredConfig: t.Config, CurrentImage: t.Image,
			DesiredImage: t.Image, State: nodestate.StateDone}}
	for _, c := range changes {
		c(&n)
	}
	return n
}

func to(t target.Target, s nodestate.State) change {
	return func(n *rollout.Node) {
		n.Record.DesiredConfig, n.Record.DesiredImage, n.Record.State = t.Config, t.Image, s
	}
}
func notReady(n *rollout.Node) { n.NotReady = "kubelet stopped posting" }
func cordoned(n *rollout.Node) { n.Cordoned = true }
func zone(z string) change     { return func(n *rollout.Node) { n.Zone = z } }
func canary(n *rollout.Node)   { n.Canary = true }
func silent(n *rollout.Node)   { n.Record = nodestate.Record{} }
func deferred(n *rollout.Node) { n.Deferred = "runs the controller" }
func age(days int) change {
	return func(n *rollout.Node) { n.Created = now.AddDate(0, 0, -days) }
}
func since(d time.Duration) change { return func(n *rollout.Node) { n.UpdatedSince = now.Add(-d) } }

func nodes(ns ...rollout.Node) []rollout.Node { return ns }

func TestWhoGoesNext(t *testing.T) {
	waves, err := rollout.ParseWaves("1, 50% / 10m")
	require.NoError(t, err)
	night, err := rollout.ParseWindows("Mon-Fri 22:00-04:00")
	require.NoError(t, err)
	for _, c := range []struct {
		name    string
		pool    rollout.Pool
		nodes   []rollout.Node
		next    []string
		reasons map[string]string
	}{
		{name: "one at a time by default", nodes: nodes(at("a", oldOne), at("b", oldOne)),
			next: []string{"a"}, reasons: map[string]string{"a": "Turn", "b": "MaxUnavailable"}},
		{name: "a percentage rounds down, and is at least one", pool: rollout.Pool{MaxUnavailable: limit("50%")},
			nodes: nodes(at("a", oldOne), at("b", oldOne), at("c", oldOne)),
			next:  []string{"a"}},
		{name: "more at once when allowed", pool: rollout.Pool{MaxUnavailable: limit("2")},
			nodes: nodes(at("a", oldOne), at("b", oldOne), at("c", oldOne)),
			next:  []string{"a", "b"}},
		{name: "the control plane goes one at a time whatever is allowed", pool: rollout.Pool{MaxUnavailable: limit("3"),
			ControlPlane: true},
			nodes: nodes(at("a", oldOne), at("b", oldOne), at("c", oldOne)), next: []string{"a"}},
		{name: "and not while a node of the control plane in another pool is away", pool: rollout.Pool{ControlPlane: true,
			Elsewhere: 1},
			nodes: nodes(at("a", oldOne), at("b", oldOne)), reasons: map[string]string{"a": "MaxUnavailable"}},
		{name: "other pools do not wait for the control " +
			"plane", pool: rollout.Pool{Elsewhere: 1}, nodes: nodes(at("a", oldOne)),
			next: []string{"a"}},
		{name: "a node under way takes the place", nodes: nodes(at("a", oldOne, to(newOne, nodestate.StateWorking)),
			at("b", oldOne)),
			reasons: map[string]string{"a": "Working", "b": "MaxUnavailable"}},
		{name: "a node just told takes the place before its agent reacts", nodes: nodes(at("a", oldOne,
			to(newOne, nodestate.StateDone)), at("b", oldOne)),
			reasons: map[string]string{"b": "MaxUnavailable"}},
		{name: "a node that is not ready takes the place and is not " +
			"told", nodes: nodes(at("a", oldOne, notReady), at("b", oldOne)),
			reasons: map[string]string{"a": "NotReady", "b": "MaxUnavailable"}},
		{name: "a node cordoned by somebody else takes the place", nodes: nodes(at("a", oldOne, cordoned), at("b", oldOne)),
			reasons: map[string]string{"a": "Cordoned", "b": "MaxUnavailable"}},
		{name: "an updated node that is not ready takes the place, " +
			"too", nodes: nodes(at("a", newOne, notReady), at("b", oldOne)),
			reasons: map[string]string{"a": "Done", "b": "MaxUnavailable"}},
		{name: "a node without agent takes the place", nodes: nodes(at("a", oldOne, silent), at("b", oldOne)),
			reasons: map[string]string{"a": "AgentSilent", "b": "MaxUnavailable"}},
		{name: "image only: a node that failed after its drain is sent to the corrected image", nodes: nodes(
			at("a", target.Target{Config: newOne.Config, Image: oldOne.Image},
				to(target.Target{Config: newOne.Config, Image: "r.example.com/os@sha256:bad"}, nodestate.StateDegraded), cordoned),
			at("b", oldOne)),
			next: []string{"a"}, reasons: map[string]string{"a": "Retarget", "b": "MaxUnavailable"}},
		{name: "a node that failed and still takes pods goes before fresh ones", nodes: nodes(at("a", oldOne),
			at("b", oldOne, to(target.Target{Config: "rendered-worker-bad"}, nodestate.StateDegraded))),
			next: []string{"b"}, reasons: map[string]string{"a": "MaxUnavailable", "b": "Retarget"}},
		{name: "of two that failed and still take pods only one goes", nodes: nodes(
			at("a", oldOne, to(target.Target{Config: "rendered-worker-bad"}, nodestate.StateDegraded)),
			at("b", oldOne, to(target.Target{Config: "rendered-worker-bad"}, nodestate.StateDegraded))),
			next: []string{"a"}, reasons: map[string]string{"b": "MaxUnavailable"}},
		{name: "nor one that failed while a node of the control plane in another pool is away", pool: rollout.Pool{
			ControlPlane: true, Elsewhere: 1}, nodes: nodes(at("a", oldOne,
			to(target.Target{Config: "rendered-worker-bad"}, nodestate.StateDegraded)), at("b", oldOne)),
			reasons: map[string]string{"a": "MaxUnavailable", "b": "MaxUnavailable"}},
		{name: "two failures at the target halt the rollout", pool: rollout.Pool{MaxUnavailable: limit("5")}, nodes: nodes(
			at("a", oldOne, to(newOne, nodestate.StateDegraded)), at("b", oldOne, to(newOne, nodestate.StateUnreconcilable)),
			at("c", oldOne)),
			reasons: map[string]string{"a": "NodeFailed", "c": "PoolStopped"}},
		{name: "a failure limit of one", pool: rollout.Pool{MaxUnavailable: limit("5"), HaltAfter: 1},
			nodes:   nodes(at("a", oldOne, to(newOne, nodestate.StateDegraded)), at("c", oldOne)),
			reasons: map[string]string{"c": "PoolStopped"}},
		{name: "a node under way to an earlier target finishes first", nodes: nodes(at("a", oldOne,
			to(target.Target{Config: "rendered-worker-x"}, nodestate.StateWorking))),
			reasons: map[string]string{"a": "EarlierTarget"}},
		{name: "a paused pool starts nothing", pool: rollout.Pool{Paused: true}, nodes: nodes(at("a", oldOne)),
			reasons: map[string]string{"a": "PoolStopped"}},
		{name: "nor does one whose image is not built", pool: rollout.Pool{Hold: "the image is being built"},
			nodes:   nodes(at("a", oldOne)),
			reasons: map[string]string{"a": "PoolStopped"}},
		{name: "nor one outside its windows", pool: rollout.Pool{Windows: night}, nodes: nodes(at("a", oldOne)),
			reasons: map[string]string{"a": "PoolStopped"}},
		{name: "zone by zone, unlabelled last, oldest first", pool: rollout.Pool{MaxUnavailable: limit("4")}, nodes: nodes(
			at("a", oldOne), at("b", oldOne, zone("z2")), at("c", oldOne, zone("z1"), age(10)),
			at("d", oldOne, zone("z1"), age(20)), at("e", oldOne, age(5))),
			next: []string{"d", "c", "b", "a"}},
		{name: "canaries first, the controller's own node last", pool: rollout.Pool{MaxUnavailable: limit("2")}, nodes: nodes(
			at("a", oldOne, deferred), at("b", oldOne), at("c", oldOne, canary)), next: []string{"c", "b"}},
		{name: "the first wave is one node", pool: rollout.Pool{MaxUnavailable: limit("4"), Waves: waves},
			nodes: nodes(at("a", oldOne), at("b", oldOne), at("c", oldOne), at("d", oldOne)),
			next:  []string{"a"}, reasons: map[string]string{"b": "Wave"}},
		{name: "the second waits while the first is on its way", pool: rollout.Pool{MaxUnavailable: limit("4"), Waves: waves},
			nodes: nodes(at("a", oldOne, to(newOne, nodestate.StateWorking)), at("b", oldOne), at("c", oldOne),
				at("d", oldOne)),
			reasons: map[string]string{"b": "Wave"}},
		{name: "and while it is watched", pool: rollout.Pool{MaxUnavailable: limit("4"), Waves: waves},
			nodes:   nodes(at("a", newOne, since(5*time.Minute)), at("b", oldOne), at("c", oldOne), at("d", oldOne)),
			reasons: map[string]string{"b": "Wave"}},
		{name: "and while it is sick", pool: rollout.Pool{MaxUnavailable: limit("4"), Waves: waves},
			nodes:   nodes(at("a", newOne, notReady), at("b", oldOne), at("c", oldOne), at("d", oldOne)),
			reasons: map[string]string{"b": "Wave"}},
		{name: "then the second wave starts", pool: rollout.Pool{MaxUnavailable: limit("4"), Waves: waves},
			nodes: nodes(at("a", newOne, since(11*time.Minute)), at("b", oldOne), at("c", oldOne), at("d", oldOne)),
			next:  []string{"b"}, reasons: map[string]string{"c": "Wave"}},
		{name: "opting out goes node by node, too", pool: rollout.Pool{Target: target.Target{Config: oldOne.Config}},
			nodes: nodes(at("a", oldOne), at("b", oldOne)),
			next:  []string{"a"}},
		{name: "a node without image is done where none is " +
			"wanted", pool: rollout.Pool{Target: target.Target{Config: oldOne.Config}},
			nodes: nodes(at("a", target.Target{Config: oldOne.Config}), at("b", oldOne)),
			next:  []string{"b"}, reasons: map[string]string{"a": "Done"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.pool.Name = "worker"
			if c.pool.Target == (target.Target{}) {
				c.pool.Target = newOne
			}
			p, err := rollout.Make(c.pool, c.nodes, now)
			require.NoError(t, err)
			assert.Equal(t, c.next, p.Next)
			assert.Len(t, p.Verdicts, len(c.nodes))
			for node, reason := range c.reasons {
				v, found := p.Verdict(node)
				require.True(t, found, node)
				assert.Equal(t, reason, v.Reason, "%s: %s", node, v.Message)
				assert.NotEmpty(t, v.Message)
			}
		})
	}
}

// What a node waits for names the wave, of how many, and how far it is.
func TestWhatWavesSay(t *testing.T) {
	waves, err := rollout.ParseWaves("1, 1, 50%, 100% / 10m")
	require.NoError(t, err)
	pool := rollout.Pool{Name: "worker", Target: newOne, MaxUnavailable: limit("4"), Waves: waves}
	for _, c := range []struct {
		name  string
		first rollout.Node
		says  string
	}{
		{"the first goes", at("a", oldOne), "wave 1 of 3 has its 1 nodes: the next one starts when they are healthy"},
		{"on its way", at("a", oldOne, to(newOne, nodestate.StateWorking)), "wave 1 of 3: 0 of 1 nodes have the target"},
		{"watched", at("a", newOne, since(time.Minute)),
			"wave 1 of 3 has the target and is watched until 2026-03-02T12:09:00Z"},
		{"sick", at("a", newOne, notReady), "wave 1 of 3 has the target, but node a is not ready: kubelet stopped posting"},
		{"the second goes", at("a", newOne), "wave 2 of 3 has its 2 nodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := rollout.Make(pool, nodes(c.first, at("b", oldOne), at("c", oldOne), at("d", oldOne)), now)
			require.NoError(t, err)
			v, found := p.Verdict("d")
			require.True(t, found)
			assert.Equal(t, "Wave", v.Reason)
			assert.Contains(t, v.Message, c.says)
		})
	}
	p, err := rollout.Make(pool, nodes(at("a", newOne), at("b", newOne), at("c", oldOne), at("d", oldOne)), now)
	require.NoError(t, err)
	assert.Equal(t, []string{"c", "d"}, p.Next, "the last wave is all nodes")
}

func TestCountsAndTimes(t *testing.T) {
	windows, err := rollout.ParseWindows("daily 22:00-04:00; Wed 10:00-11:00 Europe/Berlin")
	require.NoError(t, err)
	p, err := rollout.Make(rollout.Pool{Name: "worker", Target: newOne, Windows: windows}, nodes(
		at("a", newOne), at("b", oldOne, to(newOne, nodestate.StateDegraded)), at("c", oldOne, cordoned),
		at("d", newOne, notReady)), now)
	require.NoError(t, err)
	assert.Equal(t, rollout.Counts{Nodes: 4, Updated: 2, Ready: 1, Unavailable: 3, Degraded: 1}, p.Counts)
	assert.Equal(t, 10*time.Hour, p.RecheckAfter)
	_, found := p.Verdict("nobody")
	assert.False(t, found)
}

func TestLimitsThatCannotBeRead(t *testing.T) {
	for _, s := range []string{"many", "-1", "10"} {
		v := intstr.FromString(s)
		if s == "-1" {
			v = intstr.FromInt32(-1)
		}
		_, err := rollout.Make(rollout.Pool{Name: "worker", Target: newOne, MaxUnavailable: &v}, nodes(at("a", oldOne)), now)
		require.ErrorContains(t, err, "maxUnavailable", s)
	}
	for _, s := range []string{"", "0", "-1", "101%", "x", "1,,2", "1/soon", "1/-5m", "0%"} {
		_, err := rollout.ParseWaves(s)
		assert.Error(t, err, s)
	}
	_, err := rollout.ParseWindows("Mon 22:00")
	require.ErrorContains(t, err, `"22:00" is no time span`)
	for _, s := range []string{"", ";", "Mon", "Mon 1-2", "Foo 01:00-02:00", "Mon 25:00-26:00", "Mon 24:00-01:00",
		"Mon 01:00-25:00", "Mon x-02:00", "Mon-Foo 01:00-02:00", "Foo-Mon 01:00-02:00",
		"Mon 01:00-02:00 Nowhere/City", "Mon 01:00-02:00 UTC more"} {
		_, err := rollout.ParseWindows(s)
		assert.Error(t, err, s)
	}
}

func TestWindowsOpen(t *testing.T) {
	for _, c := range []struct {
		name        string
		windows, at string
		open        bool
		wait        time.Duration
	}{
		{"inside", "Mon 10:00-14:00", "2026-03-02T12:00:00Z", true, 0},
		{"at the opening", "Mon 10:00-14:00", "2026-03-02T10:00:00Z", true, 0},
		{"at the close", "Mon 10:00-14:00", "2026-03-02T14:00:00Z", false, 7*24*time.Hour - 4*time.Hour},
		{"minutes count", "Mon 12:30-14:00", "2026-03-02T12:29:00Z", false, time.Minute},
		{"after midnight", "Mon 22:00-04:00", "2026-03-03T03:59:00Z", true, 0},
		{"not the morning before", "Mon 22:00-04:00", "2026-03-02T03:00:00Z", false, 19 * time.Hour},
		{"a range over the weekend", "Sat-Mon 00:00-24:00", "2026-03-02T23:59:00Z", true, 0},
		{"another zone", "Mon 13:00-14:00 Europe/Berlin", "2026-03-02T12:30:00Z", true, 0},
		{"the nearest of several", "Tue 00:00-01:00; Mon 13:00-14:00", "2026-03-02T12:00:00Z", false, time.Hour},
		{"the night that summer time begins", "Sun 01:00-04:00 Europe/Berlin", "2026-03-29T01:30:00Z", true, 0},
		{"its close is an hour earlier", "Sun 01:00-04:00 Europe/Berlin", "2026-03-29T02:00:00Z", false,
			7*24*time.Hour - 3*time.Hour},
		{"a whole day", "daily 00:00-24:00", "2026-03-02T23:59:59Z", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ws, err := rollout.ParseWindows(c.windows)
			require.NoError(t, err)
			when, err := time.Parse(time.RFC3339, c.at)
			require.NoError(t, err)
			open, wait := ws.Open(when)
			assert.Equal(t, c.open, open)
			assert.Equal(t, c.wait, wait)
		})
	}
}

func BenchmarkMake5000(b *testing.B) {
	pool := rollout.Pool{Name: "worker", Target: newOne, MaxUnavailable: limit("10%"),
		Waves: rollout.Waves{Sizes: []intstr.IntOrString{*limit("1"), *limit("10%")}}}
	var ns []rollout.Node
	for i := range 5000 {
		target := oldOne
		if i%3 == 0 {
			target = newOne
		}
		ns = append(ns, at(fmt.Sprintf("node-%d", i), target, zone(fmt.Sprint(i%7)), age(i%100)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rollout.Make(pool, ns, now); err != nil {
			b.Fatal(err)
		}
	}
}
