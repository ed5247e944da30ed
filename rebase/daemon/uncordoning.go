package daemon

import (
	"context"
	"strings"

	"dayone.dev/dayone/rebase/nodestate"
)

// uncordoning lets pods come again, if the node was drained, and says that the node is done.
func uncordoning(_ context.Context, _ *edges, in observed) (outcome, error) {
	switch {
	case strings.HasPrefix(in.record.DesiredDrain, nodestate.Drain+"-"):
		return outcome{next: Uncordoning, after: waitInterval, record: func(r *nodestate.Record) {
			r.DesiredDrain = nodestate.DrainRequest(nodestate.Uncordon, in.journal.Target.Config)
			r.Progress = string(Uncordoning)
		}}, nil
	case in.record.DesiredDrain != "" && !in.record.Drained():
		return outcome{next: Uncordoning, after: waitInterval}, nil
	}
	return outcome{next: Idle, record: done(in.current)}, nil
}
