package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Phase is where a node stands on its way to the target.
type Phase string

// The phases.
const (
	// PhaseUpdated nodes have the target.
	PhaseUpdated Phase = "Updated"
	// PhaseUpdating nodes were told to go to the target and are at it.
	PhaseUpdating Phase = "Updating"
	// PhaseNext nodes are to be told now.
	PhaseNext Phase = "Next"
	// PhaseWaiting nodes could go and wait for their turn.
	PhaseWaiting Phase = "Waiting"
	// PhaseBlocked nodes cannot go whatever the others do.
	PhaseBlocked Phase = "Blocked"
	// PhaseFailed nodes were told to go to the target and gave up.
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
	Target Target `json:"target"`
	// MaxUnavailable is the limit in nodes.
	MaxUnavailable int `json:"maxUnavailable"`
	// Next are the nodes to be told to go to the target now, in order.
	Next []string `json:"next"`
	// Stopped is why the pool starts no node at all; empty: it may.
	Stopped string `json:"stopped,omitempty"`
	// Verdicts hold one entry for each node, by name.
	Verdicts []Verdict `json:"verdicts"`
	// Counts are the pool's nodes in numbers.
	Counts Counts `json:"counts"`
	// LookAgain is after which time the answer may change without any object changing; 0: it does not.
	LookAgain time.Duration `json:"-"`
}

// Verdict gives one node's verdict.
func (p Plan) Verdict(node string) (Verdict, bool) {
	i, found := slices.BinarySearchFunc(p.Verdicts, node, func(v Verdict, name string) int { return cmp.Compare(v.Node, name) })
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
	p := &planner{pool: pool, limit: limit, now: now, verdicts: make(map[string]Verdict, len(nodes))}
	p.nodes = slices.Clone(nodes)
	slices.SortStableFunc(p.nodes, order)
	p.conditions = make([]condition, len(p.nodes))
	for i, n := range p.nodes {
		p.conditions[i] = n.condition(pool.Target)
	}
	p.count()
	p.settle()
	p.choose()
	return p.plan(), nil
}

// planner holds the state of one decision. nodes are in the order in which they go.
type planner struct {
	pool       Pool
	limit      int
	now        time.Time
	nodes      []Node
	conditions []condition
	verdicts   map[string]Verdict
	next       []string
	counts     Counts
	// down is how many nodes take no pods or will soon take none; taken is how many places of the limit are taken.
	down, taken int
	// failed is how many nodes gave up at the target itself; touched is how many were told to go to it.
	failed, touched int
	stopped         string
	lookAgain       time.Duration
}

// count takes stock before anything starts.
func (p *planner) count() {
	p.counts.Nodes = len(p.nodes)
	for i, n := range p.nodes {
		c := p.conditions[i]
		if c.updated {
			p.counts.Updated++
		}
		if n.NotReady == "" && !n.Cordoned {
			p.counts.Ready++
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
	for i, n := range p.nodes {
		c := p.conditions[i]
		switch {
		case c.silent && n.RecordErr != nil:
			p.say(n, PhaseBlocked, "RecordUnreadable", fmt.Sprintf("its annotations cannot be read: %v", n.RecordErr))
		case c.silent:
			p.say(n, PhaseBlocked, "AgentSilent", "its agent has not reported yet: see that dayone-daemon runs on it")
		case c.updated:
			p.say(n, PhaseUpdated, "Done", "has the target")
		case c.targeted && c.failing:
			p.say(n, PhaseFailed, "NodeFailed", "gave up at the target: "+text(n.Record.Reason, "no reason given"))
		case c.targeted:
			p.say(n, PhaseUpdating, string(n.Record.State), "is on its way to the target")
		case c.inFlight:
			p.say(n, PhaseWaiting, "EarlierTarget", fmt.Sprintf("still goes to %s, the new target follows then", n.Record.DesiredConfig))
		case !c.failing && n.NotReady != "":
			p.say(n, PhaseBlocked, "NotReady", "is not ready: "+n.NotReady)
		case !c.failing && n.Cordoned:
			p.say(n, PhaseBlocked, "Cordoned", "was cordoned by somebody else: uncordon it when it may be updated")
		}
	}
}

func (p *planner) say(n Node, phase Phase, reason, message string) {
	p.verdicts[n.Name] = Verdict{Node: n.Name, Phase: phase, Reason: reason, Message: message}
}

// text gives s, or what stands for it when it is empty.
func text(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// line gives the nodes that are next or wait their places: failed ones first, as they are chosen.
func (p *planner) line() {
	place := 0
	for _, failing := range []bool{true, false} {
		for i, n := range p.nodes {
			v := p.verdicts[n.Name]
			if p.conditions[i].failing == failing && (v.Phase == PhaseNext || v.Phase == PhaseWaiting) {
				place++
				v.Position = place
				p.verdicts[n.Name] = v
			}
		}
	}
}

func (p *planner) plan() Plan {
	out := Plan{Pool: p.pool.Name, Target: p.pool.Target, MaxUnavailable: p.limit, Next: p.next, Stopped: p.stopped, Counts: p.counts, LookAgain: p.lookAgain}
	out.Verdicts = make([]Verdict, 0, len(p.verdicts))
	p.line()
	for _, v := range p.verdicts {
		out.Verdicts = append(out.Verdicts, v)
	}
	slices.SortFunc(out.Verdicts, func(a, b Verdict) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// order is the order in which nodes go: canaries, then zone by zone, in a zone the oldest first; deferred nodes at the end.
func order(a, b Node) int {
	return cmp.Or(
		last(a.Deferred != "", b.Deferred != ""),
		last(!a.Canary, !b.Canary),
		last(a.Zone == "", b.Zone == ""),
		cmp.Compare(a.Zone, b.Zone),
		a.Created.Compare(b.Created),
		cmp.Compare(a.Name, b.Name),
	)
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
