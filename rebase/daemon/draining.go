package daemon

import (
	"context"
	"slices"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// draining asks the drain controller and waits for its answer.
func draining(_ context.Context, _ *edges, in observed) (outcome, error) {
	request := drainRequest(in.journal)
	if in.record.DesiredDrain == request && in.record.Drained() {
		return outcome{next: Applying}, nil
	}
	return outcome{next: Draining, after: waitInterval, record: func(r *nodestate.Record) {
		r.DesiredDrain, r.State, r.Reason, r.Progress = request, nodestate.StateWorking, "", string(Draining)
	}}, nil
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
