package daemon

import (
	"context"
	"time"

	"dayone.dev/dayone/rebase/nodestate"
)

// draining asks the drain controller and waits for its answer.
func (a *Agent) draining(ctx context.Context, n node) (State, time.Duration, error) {
	request := nodestate.DrainRequest(nodestate.Drain, a.journal.Target.Config)
	if n.record.DesiredDrain == request && n.record.Drained() {
		return Applying, 0, nil
	}
	return Draining, waitInterval, a.tell(ctx, n, func(r *nodestate.Record) {
		r.DesiredDrain, r.State, r.Reason, r.Progress = request, nodestate.StateWorking, "", string(Draining)
	})
}
