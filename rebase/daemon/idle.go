package daemon

import (
	"context"
	"fmt"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// idle looks for another target; what has changed on disk meanwhile is reported.
func idle(ctx context.Context, e *edges, in observed) (outcome, error) {
	force, err := forceAsked(e.root)
	if err != nil {
		return outcome{}, err
	}
	if in.record.Desired() != in.current.Target() || force && !in.away {
		leaveIdle(ctx, e, in)
		return outcome{next: Planning}, nil
	}
	if err := endBootstrapTrust(ctx, e, in.node); err != nil {
		return outcome{}, err
	}
	files, err := e.trust.settle(ctx, in.away, in.current.Config)
	if err != nil {
		return outcome{}, err
	}
	if !in.away {
		if _, err := machineConfiguration(ctx, e); err != nil {
			e.log.WithError(err).Warn("cannot read the MachineConfiguration: the log's level stays")
		}
		e.trust.show(ctx, e.record, in.node)
		prefetch(ctx, e, in)
		pin(ctx, e, in)
	}
	if e.beyondFirstBoot, err = beyondFirstBoot(e.root, in.current.Config); err != nil {
		e.log.WithError(err).Warn("cannot compare the node's disks with its config")
	}
	lost, err := imageLost(ctx, e, in)
	if err != nil {
		return outcome{}, err
	}
	if lost {
		leaveIdle(ctx, e, in)
		return outcome{next: Planning}, nil
	}
	err = e.drift.check(ctx, files, in.current)
	e.events.tell(ctx, in.node, in.of(eventDriftWatched, "the node's disk is compared with %s", in.current.Config.Name).
		also(in.boot))
	if err != nil {
		return outcome{}, err
	}
	e.metrics.updated(in.current.Config.Name, nil)
	after := e.idlePause
	if in.away {
		after = pollInterval
	}
	return outcome{next: Idle, after: after, record: func(r *nodestate.Record) {
		done(in.current)(r)
		r.Progress = e.prefetch.progress()
	}}, nil
}

// leaveIdle tells that the node leaves what it has.
func leaveIdle(ctx context.Context, e *edges, in observed) {
	if in.first {
		e.events.tell(ctx, in.node, in.of(eventBootResync, "the agent starts on a node with %s that is to have %s",
			in.current.Target(), in.record.Desired()).also(in.boot))
		return
	}
	e.events.tell(ctx, in.node, in.of(eventDriftUnwatched, "the node's disk is not compared with %s any more: "+
		"the node is to have %s", in.current.Config.Name, in.record.Desired()).also(in.boot))
}

// prefetch lets the node fetch the image that its controller names, before it is the node's target; it answers on the
// node, and drops an image that no longer counts. What fails is logged and left: the update itself fetches what is
// missing.
func prefetch(ctx context.Context, e *edges, in observed) {
	asked := in.object.Annotations[manifests.AnnotationPrefetch]
	if err := e.prefetch.follow(ctx, asked, in.record.CurrentImage); err != nil {
		e.log.WithError(err).Warn("prefetch failed")
	}
	if err := e.record.say(ctx, in.object.Annotations, e.prefetch.answer(asked)); err != nil {
		e.log.WithError(err).Warn("cannot report the prefetch")
	}
}

// pin lets the node pull and keep the images of its pools' PinnedImageSets, and answers on the node.
func pin(ctx context.Context, e *edges, in observed) {
	e.pins.follow(ctx, in.object.Annotations)
	if err := e.record.say(ctx, in.object.Annotations, e.pins.answer()); err != nil {
		e.log.WithError(err).Warn("cannot report the pinned images")
	}
}

// imageLost tells whether an image that was to come with the next reboot, because the running system has its config
// already, is not staged any more: power was cut. It is staged again.
func imageLost(ctx context.Context, e *edges, in observed) (bool, error) {
	current := in.current
	promise, err := disruption.PromiseOf(in.object.Annotations, current.Config.Name, current.Image)
	if err != nil || promise == nil || promise.Change != disruption.ImageConfig || current.Image == "" {
		return false, err
	}
	status, err := e.deployer.Status(ctx)
	if err != nil {
		return false, fmt.Errorf("read deployments: %w", err)
	}
	return !waits(status, current.Image), nil
}
