package daemon

import (
	"context"
	"slices"
	"time"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// draining asks the drain controller and waits for its answer.
func draining(ctx context.Context, e *edges, in observed) (outcome, error) {
	request := drainRequest(in.journal)
	switch asked := in.record.DesiredDrain == request; {
	case asked && in.record.Drained():
		return outcome{next: Applying}, nil
	case !asked:
		e.events.tell(ctx, in.node, in.of(eventCordon, "the node takes no pods while it goes to %s", in.journal.Target),
			in.of(eventDrain, "the node's pods are asked to leave before it goes to %s", in.journal.Target))
	case in.waits(e, drainLimit):
		e.events.tell(ctx, in.node, in.of(eventDrainFailed,
			"after %s the node is not drained: the drain goes on, see the events of the drain controller", drainLimit).warns())
	}
	return outcome{next: Draining, after: waitInterval, record: func(r *nodestate.Record) {
		r.DesiredDrain, r.State, r.Reason, r.Progress = request, nodestate.StateWorking, "", string(Draining)
	}}, nil
}

// waits tells whether the agent has been in its state for longer than a limit.
func (in observed) waits(e *edges, limit time.Duration) bool {
	since := in.journal.Entered
	return !since.IsZero() && e.now().Sub(since) > limit
}

// drainRequest is what the agent asks the drain controller for on the way to its target.
func drainRequest(j journal) string { return nodestate.DrainRequest(nodestate.Drain, j.Target.Config) }

// drained tells whether no pod is in the way of what the plan does next. The drain controller takes its answer back
// when somebody lets pods come again while the agent is still at work, such as at a pull that fails. While the API is
// away its last answer counts.
func (in observed) drained() bool {
	if in.away || !slices.Contains(in.journal.Plan.Steps, disruption.Action{Type: disruption.Drain}) {
		return true
	}
	return in.record.DesiredDrain == drainRequest(in.journal) && in.record.Drained()
}
