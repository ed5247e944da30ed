package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/rebase/target"
)

// Phase is where a node stands on its way to the target.
type Phase string

// The phases.
const (
	// PhaseUpdated nodes have the target.
	PhaseUpdated Phase = "Updated"
	// PhaseUpdating nodes have the target as desired one and work on it.
	PhaseUpdating Phase = "Updating"
	// PhaseNext nodes get the target now.
	PhaseNext Phase = "Next"
	// PhaseWaiting nodes could go and wait for their turn.
	PhaseWaiting Phase = "Waiting"
	// PhaseBlocked nodes cannot go whatever the others do.
	PhaseBlocked Phase = "Blocked"
	// PhaseFailed nodes have the target as desired one and gave up.
	PhaseFailed Phase = "Failed"
)

// Verdict says where a node stands and why it is not further.
type Verdict struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Phase is where it stands.
	Phase Phase `json:"phase"`
	// Reason is one word for machines.
	Reason string `json:"reason"`
	// Message is a sentence for people that says what would change it.
	Message string `json:"message"`
	// Position is the node's place among those that wait or are next, from 1; 0: it is not one of them.
	Position int `json:"position,omitempty"`
}

// Counts are the numbers of a pool's status.
type Counts struct {
	// Nodes is how many the pool has.
	Nodes int `json:"nodes"`
	// Updated have the target.
	Updated int `json:"updated"`
	// Ready have the target and take pods.
	Ready int `json:"ready"`
	// Unavailable count against the limit.
	Unavailable int `json:"unavailable"`
	// Degraded have given up.
	Degraded int `json:"degraded"`
}

// Plan is the answer for one moment.
type Plan struct {
	// Pool is the pool's name.
	Pool string `json:"pool"`
	// Target is what its nodes should have.
	Target target.Target `json:"target"`
	// MaxUnavailable is the limit in nodes.
	MaxUnavailable int `json:"maxUnavailable"`
	// Next are the nodes that get the target now, in order.
	Next []string `json:"next"`
	// Stopped is why the pool starts no node at all; empty: it may.
	Stopped string `json:"stopped,omitempty"`
	// Verdicts hold one entry for each node, by name.
	Verdicts []Verdict `json:"verdicts"`
	// Counts are the pool's nodes in numbers.
	Counts Counts `json:"counts"`
	// RecheckAfter is after which time the answer may change without any object changing; 0: it does not.
	RecheckAfter time.Duration `json:"-"`
}

// Verdict gives one node's verdict.
func (p Plan) Verdict(node string) (Verdict, bool) {
	i, found := slices.BinarySearchFunc(p.Verdicts, node,
		func(v Verdict, name string) int { return cmp.Compare(v.Node, name) })
	if !found {
		return Verdict{}, false
	}
	return p.Verdicts[i], true
}

// Make decides. It fails only for a maxUnavailable that cannot be read; then nothing may start.
func Make(pool Pool, nodes []Node, now time.Time) (Plan, error) {
	limit, err := pool.maxUnavailable(len(nodes))
	if err != nil {
		return Plan{}, err
	}
	p := &planner{pool: pool, limit: limit, now: now, nodes: nodes, verdicts: make([]Verdict, len(nodes)),
		conditions: make([]condition, len(nodes)), order: make([]int, len(nodes))}
	for i := range nodes {
		p.order[i], p.conditions[i] = i, nodes[i].condition(pool.Target)
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return order(&nodes[a], &nodes[b]) })
	p.count()
	p.settle()
	p.choose()
	return p.plan(), nil
}

// planner holds the state of one decision. Nodes, the largest part by far, stay where they are: order is the one in
// which they go, by their places among nodes.
type planner struct {
	pool  Pool
	limit int
	now   time.Time
	nodes []Node
	order []int
	// conditions and verdicts are the nodes', at the same places; a verdict without a phase is still to be found.
	conditions []condition
	verdicts   []Verdict
	next       []string
	counts     Counts
	// down is how many nodes take no pods or will soon take none; taken is how many places of the limit are taken.
	down, taken int
	// failed is how many nodes gave up at the target itself; touched is how many have it as desired one.
	failed, touched int
	stopped         string
	recheckAfter    time.Duration
}

// count sums up the nodes before anything starts.
func (p *planner) count() {
	p.counts.Nodes = len(p.nodes)
	for i, c := range p.conditions {
		n := &p.nodes[i]
		if c.updated {
			p.counts.Updated++
			if n.NotReady == "" && !n.Cordoned {
				p.counts.Ready++
			}
		}
		if c.failing {
			p.counts.Degraded++
		}
		if c.unavailable() {
			p.taken++
		}
		if c.down {
			p.down++
		}
		if c.targeted {
			p.touched++
			if c.failing {
				p.failed++
			}
		}
	}
	p.counts.Unavailable = p.taken
	if p.pool.ControlPlane {
		p.taken, p.down = p.taken+p.pool.Elsewhere, p.down+p.pool.Elsewhere
	}
}

// settle gives a verdict to every node that this moment's choice cannot concern; the others are candidates.
func (p *planner) settle() {
	for i, c := range p.conditions {
		n := &p.nodes[i]
		switch {
		case c.silent && n.RecordErr != nil:
			p.say(i, PhaseBlocked, "RecordUnreadable", n.Unreadable())
		case c.silent:
			p.say(i, PhaseBlocked, "AgentSilent", "its agent has not reported yet: see that dayone-daemon runs on it")
		case c.updated:
			p.say(i, PhaseUpdated, "Done", "has the target")
		case c.targeted && c.failing:
			p.say(i, PhaseFailed, "NodeFailed", "gave up at the target: "+cmp.Or(n.Record.Reason, "no reason given"))
		case c.targeted:
			p.say(i, PhaseUpdating, string(n.Record.State), "is on its way to the target")
		case c.inFlight:
			p.say(i, PhaseWaiting, "EarlierTarget", fmt.Sprintf("still goes to %s, the new target follows then",
				n.Record.DesiredConfig))
		case !c.failing && n.NotReady != "":
			p.say(i, PhaseBlocked, "NotReady", "is not ready: "+n.NotReady)
		case !c.failing && n.Cordoned:
			p.say(i, PhaseBlocked, "Cordoned", "was cordoned by somebody else: uncordon it when it may be updated")
		}
	}
}

// say settles the node at place i.
func (p *planner) say(i int, phase Phase, reason, message string) {
	p.verdicts[i] = Verdict{Node: p.nodes[i].Name, Phase: phase, Reason: reason, Message: message}
}

// text gives s, or what stands for it when it is empty.

// line gives the nodes that are next or wait their places: failed ones first, as they are chosen.
func (p *planner) line() {
	place := 0
	for _, failing := range []bool{true, false} {
		for _, i := range p.order {
			v := &p.verdicts[i]
			if p.conditions[i].failing == failing && (v.Phase == PhaseNext || v.Phase == PhaseWaiting) {
				place++
				v.Position = place
			}
		}
	}
}

func (p *planner) plan() Plan {
	p.line()
	byName := func(a, b Verdict) int { return cmp.Compare(a.Node, b.Node) }
	if !slices.IsSortedFunc(p.verdicts, byName) {
		slices.SortFunc(p.verdicts, byName)
	}
	return Plan{Pool: p.pool.Name, Target: p.pool.Target, MaxUnavailable: p.limit, Next: p.next, Stopped: p.stopped,
		Verdicts: p.verdicts, Counts: p.counts, RecheckAfter: p.recheckAfter}
}

// order is the order in which nodes go: canaries, then zone by zone, in a zone the oldest first; deferred nodes at the
// end. It is asked a hundred thousand times for a large fleet, and most answers are in the zone or the age.
func order(a, b *Node) int {
	if a.Deferred != b.Deferred || a.Canary != b.Canary || a.Zone != b.Zone {
		if c := cmp.Or(last(a.Deferred != "", b.Deferred != ""), last(!a.Canary, !b.Canary), last(a.Zone == "", b.Zone == ""),
			strings.Compare(a.Zone, b.Zone)); c != 0 {
			return c
		}
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// last orders what holds behind what does not.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
