package daemon

import (
	"context"
	"strings"
	"time"

	"dayone.dev/dayone/rebase/nodestate"
)

// uncordoning lets pods come again, if they were made to leave, and says that the node is done.
func (a *Agent) uncordoning(ctx context.Context, n node) (State, time.Duration, error) {
	request := nodestate.DrainRequest(nodestate.Uncordon, a.journal.Target.Config)
	drained := strings.HasPrefix(n.record.DesiredDrain, nodestate.Drain+"-")
	switch {
	case drained:
		return Uncordoning, waitInterval, a.tell(ctx, n, func(r *nodestate.Record) {
			r.DesiredDrain, r.Progress = request,
				string(Uncordoning)
		})
	case n.record.DesiredDrain != "" && !n.record.Drained():
		return Uncordoning, waitInterval, nil
	}
	current, err := a.current()
	if err != nil {
		return Uncordoning, 0, err
	}
	if err := a.tell(ctx, n, done(current)); err != nil {
		return Uncordoning, 0, err
	}
	return Idle, 0, nil
}
