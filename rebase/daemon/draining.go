package daemon

import (
	"context"
	"slices"
	"time"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// draining asks the drain controller and waits for its answer.
func (a *Agent) draining(ctx context.Context, n node) (State, time.Duration, error) {
	request := a.drainRequest()
	if n.record.DesiredDrain == request && n.record.Drained() {
		return Applying, 0, nil
	}
	return Draining, waitInterval, a.tell(ctx, n, func(r *nodestate.Record) {
		r.DesiredDrain, r.State, r.Reason, r.Progress = request, nodestate.StateWorking, "", string(Draining)
	})
}

// drainRequest is what the agent asks the drain controller for on the way to its target.
func (a *Agent) drainRequest() string {
	return nodestate.DrainRequest(nodestate.Drain, a.journal.Target.Config)
}

// drained tells that no pod is in the way of what the plan does next. The drain controller takes its answer back when
// somebody lets pods come again while the agent is at it still, such as at a pull that fails. While the API is away
// what was answered counts.
func (a *Agent) drained(n node) bool {
	if n.away || !slices.Contains(a.journal.Plan.Steps, disruption.Action{Type: disruption.Drain}) {
		return true
	}
	return n.record.DesiredDrain == a.drainRequest() && n.record.Drained()
}
