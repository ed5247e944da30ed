package daemon

import (
	"context"
	"fmt"
	"time"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// idle watches for another target; what has changed on disk meanwhile is reported.
func (a *Agent) idle(ctx context.Context, n node) (State, time.Duration, error) {
	current, err := a.current()
	if err != nil {
		return Idle, 0, err
	}
	if n.target() != current.Target() {
		return Planning, 0, nil
	}
	if err := a.endTrust(ctx, n); err != nil {
		return Idle, 0, err
	}
	if err := a.settleTrust(ctx, n, current.Config); err != nil {
		return Idle, 0, err
	}
	a.fetchAhead(ctx, n)
	lost, err := a.lost(ctx, n, current)
	if err != nil || lost {
		return Planning, 0, err
	}
	if err := a.drift(ctx, current); err != nil {
		return Idle, 0, err
	}
	after := pollInterval
	if a.o.Wake != nil && !n.away {
		after = wokenInterval
	}
	return Idle, after, a.tell(ctx, n, func(r *nodestate.Record) {
		done(current)(r)
		r.Progress = a.ahead.progress()
	})
}

// lost tells whether an image that was to come with the next reboot, because the running system has its config already,
// is not staged any more: power was cut. It is staged again.
func (a *Agent) lost(ctx context.Context, n node, current nodedisk.Current) (bool, error) {
	promise, err := disruption.PromiseOf(n.object.Annotations, current.Config.Name, current.Image)
	if err != nil || promise == nil || promise.Change != disruption.ImageConfig || current.Image == "" {
		return false, err
	}
	status, err := a.o.Deployer.Status(ctx)
	if err != nil {
		return false, fmt.Errorf("read deployments: %w", err)
	}
	return !waits(status, current.Image), nil
}

// done says that the node has what is on its disk.
func done(current nodedisk.Current) func(*nodestate.Record) {
	return func(r *nodestate.Record) {
		r.CurrentConfig, r.CurrentImage = current.Config.Name, current.Image
		r.State, r.Reason, r.PostConfigAction, r.Progress = nodestate.StateDone, "", "", ""
	}
}
