package rollout

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// Pool is what the planner needs to know of a MachineConfigPool.
type Pool struct {
	Name string
	// Target of the nodes.
	Target target.Target
	// Paused pools start nothing; what is under way goes on.
	Paused bool
	// Hold is why the target may not be delivered yet, for example that its image is being built; empty: it may.
	Hold string
	// HoldReason is the word for Hold in the verdicts of the nodes that wait for it; empty: PoolStopped.
	HoldReason string
	// MaxUnavailable is a number or a percentage (rounded down) of the pool's nodes; nil, 0 and 0% mean 1.
	MaxUnavailable *intstr.IntOrString
	// ControlPlane pools go one node at a time whatever MaxUnavailable says, so that etcd keeps its quorum.
	ControlPlane bool
	// Elsewhere is how many nodes of the control plane that are not in this pool are unavailable: they take its place,
	// too.
	Elsewhere int
	// HaltAfter is how many nodes may fail at a target before no more nodes get it; 0 means DefaultHaltAfter.
	HaltAfter int
	// Windows are the times at which nodes may start; none means always.
	Windows Windows
	// Prefetch is how many nodes may prefetch the image at the same time; 0 means a fifth of
	// MaxUnavailable, and at least 5; less means none.
	Prefetch int
	// Waves bound how many nodes get the target before those that have it are seen to be healthy; none means all at once.
	Waves Waves
}

// DefaultHaltAfter is the number of failed nodes that stops a rollout: one may be that node's own fault, two point to
// the target.
const DefaultHaltAfter = 2

// Node is what the planner needs to know of a Node.
type Node struct {
	Name string
	// Zone is the value of topology.kubernetes.io/zone; nodes without one go last.
	Zone string
	// Created orders nodes of a zone: the oldest goes first.
	Created time.Time
	// Canary nodes go before all others.
	Canary bool
	// Deferred nodes go last, for example the one that runs the controller itself; the text says why.
	Deferred string
	// Unforeseen is why it is not known what the target does to the node, which stays where it is then; empty: it is
	// known, or need not be.
	Unforeseen string
	// NotReady says why the node cannot take pods (conditions); empty: it can.
	NotReady string
	// Cordoned is spec.unschedulable.
	Cordoned bool
	// Record is what the node's annotations say; RecordErr is set when they cannot be read.
	Record    nodestate.Record
	RecordErr error
	// Prefetch is the image that the node was asked to prefetch; PrefetchEnded: its agent has it, or has given up.
	Prefetch      string
	PrefetchEnded bool
	// UpdatedSince is when the node reported its present config and image as done; zero if that is not known.
	UpdatedSince time.Time
}

// Unreadable is what is to be done about a record that cannot be read. Agents mend what is their own.
func (n *Node) Unreadable() string {
	return fmt.Sprintf("its annotations cannot be read: %v; remove that annotation: what belongs there is written anew",
		n.RecordErr)
}

// maxUnavailable gives the number of nodes that may be unavailable at once.
func (p Pool) maxUnavailable(nodes int) (int, error) {
	limit := 1
	if p.MaxUnavailable != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(p.MaxUnavailable, nodes, false)
		if err != nil {
			return 0, fmt.Errorf("read maxUnavailable %q of pool %s: %w: give a number such as 2 or a percentage such as 10%%",
				p.MaxUnavailable.String(), p.Name, err)
		}
		if n < 0 {
			return 0, fmt.Errorf(
				"read maxUnavailable %q of pool %s: it is negative: give a number such as 2 or a percentage such as 10%%",
				p.MaxUnavailable.String(), p.Name)
		}
		limit = max(1, n)
	}
	if p.ControlPlane {
		limit = 1
	}
	return limit, nil
}

// haltAfter gives the number of failures that stops the rollout.
func (p Pool) haltAfter() int {
	if p.HaltAfter <= 0 {
		return DefaultHaltAfter
	}
	return p.HaltAfter
}

// condition is what a node's record and state mean for the target.
type condition struct {
	// targeted: its desired target is the target. updated: it is there, and says so.
	targeted, updated bool
	// silent: no agent has written a record yet, or it cannot be read.
	silent bool
	// failing: its agent gave up. inFlight: its agent is at work.
	failing, inFlight bool
	// down: it takes no pods, or will soon take none because its agent is at work.
	down bool
}

func (n *Node) condition(t target.Target) condition {
	r := &n.Record
	c := condition{silent: n.RecordErr != nil || r.CurrentConfig == "" || r.State == ""}
	if !c.silent {
		c.targeted = r.Desired() == t
		c.updated = c.targeted && r.Converged()
		c.failing = r.State == nodestate.StateDegraded || r.State == nodestate.StateUnreconcilable
		c.inFlight = !c.failing && !r.Converged()
	}
	c.down = n.NotReady != "" || n.Cordoned || c.inFlight
	return c
}

// unavailable tells whether the node takes a place of maxUnavailable: it is down, or it is not known to be well.
func (c condition) unavailable() bool {
	return c.down || c.failing || c.silent
}
