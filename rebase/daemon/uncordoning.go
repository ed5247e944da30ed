package daemon

import (
	"context"
	"strings"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
)

// uncordoning lets pods come again, if the node was drained, and says that the node is done.
func uncordoning(ctx context.Context, e *edges, in observed) (outcome, error) {
	switch {
	case strings.HasPrefix(in.record.DesiredDrain, nodestate.Drain+"-"):
		return outcome{next: Uncordoning, after: waitInterval, record: func(r *nodestate.Record) {
			r.DesiredDrain = nodestate.DrainRequest(nodestate.Uncordon, in.journal.Target.Config)
			r.Progress = string(Uncordoning)
		}}, nil
	case in.record.DesiredDrain != "" && !in.record.Drained():
		if in.waits(e, uncordonLimit) {
			e.events.tell(ctx, in.node, in.of(eventUncordonFailed,
				"after %s pods may not come again: see the events of the drain controller", uncordonLimit).warns())
		}
		return outcome{next: Uncordoning, after: waitInterval}, nil
	}
	if in.record.DesiredDrain != "" {
		e.events.tell(ctx, in.node, in.of(eventUncordon, "the node has %s, and pods may come again", in.current.Target()))
	}
	if err := e.record.say(ctx, in.object.Annotations, map[string]string{manifests.AnnotationForced: ""}); err != nil {
		return outcome{}, err
	}
	e.events.tell(ctx, in.node, in.of(eventNodeDone, "the node has %s", in.current.Target()))
	e.metrics.updated(in.current.Config.Name, nil)
	return outcome{next: Idle, record: done(in.current)}, nil
}
