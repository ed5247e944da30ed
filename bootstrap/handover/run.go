package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errDeadline ends a hand-over whose time is over.
var errDeadline = errors.New("the hand-over's deadline has passed")

// Run hands over. When it returns without an error the bootstrap host may go: every image that an object refers to is
// in its final registry, the cluster wants of its nodes what they run, nodes no longer trust the bootstrap registry,
// and its accounts have ended. It may be killed at any point and run again.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	o = o.withDefaults()
	if o.Policy == PolicyDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Deadline, errDeadline)
		defer cancel()
	}
	scratch, err := os.MkdirTemp(o.TempDir, "handover-")
	if err != nil {
		return fmt.Errorf("make temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	images, err := newCourier(o, scratch)
	if err != nil {
		return err
	}
	for _, s := range stages(o, images) {
		if err := persist(ctx, o, s.stage, s.do); err != nil {
			return err
		}
	}
	o.Log.Info("hand-over is done: the bootstrap host may go")
	return nil
}

// stageWork is a stage with what it does.
type stageWork struct {
	stage Stage
	do    attempt
}

// stages are those of a plan in their order. Images for the cluster's own registries need the cluster to find these.
func stages(o Options, images courier) []stageWork {
	cluster, changed := &session{o: o}, map[string]string{}
	deliver, adopt := images.deliverAll, cluster.with(images.adoptOrphans)
	own := newReplicas(images)
	if o.Plan.ClusterRegistry != "" {
		deliver, adopt = cluster.with(own.deliverAll), cluster.with(own.adoptOrphans)
	}
	list := []stageWork{
		{StageImages, deliver},
		{StageObjects, cluster.with(func(ctx context.Context, c client.Client) error {
			return applyObjects(ctx, writer{cluster: c, o: o, changed: changed})
		})},
		{StageAgree, cluster.with(func(ctx context.Context, c client.Client) error {
			return agree(ctx, c, o.Plan, changed)
		})},
		{StageOrphans, adopt},
	}
	if o.Plan.ClusterRegistry != "" {
		list = append(list, stageWork{StageReplicas, cluster.with(own.agreed)})
	}
	return append(list,
		stageWork{StageTrust, cluster.with(func(ctx context.Context, c client.Client) error { return endTrust(ctx, c, o) })},
		stageWork{StageRevoke, o.Revoke})
}

// attempt is one stage's work. It is called until it is done.
type attempt func(context.Context) error

// session is the connection to the cluster.
type session struct {
	o      Options
	client client.Client
}

// with does something with the cluster. It connects where there is no connection, and drops one on which the cluster no
// longer answers.
func (s *session) with(do func(context.Context, client.Client) error) attempt {
	return func(ctx context.Context) error {
		if s.client == nil {
			c, err := s.o.Connect(ctx)
			if err != nil {
				return ofCluster(err)
			}
			if err := belongs(ctx, c, s.o); err != nil {
				return err
			}
			s.client = c
		}
		err := do(ctx, s.client)
		if _, ok := errors.AsType[net.Error](err); ok {
			s.client = nil
		}
		return err
	}
}

// persist repeats a stage: every Interval while it waits for something, after pauses that double when it fails.
func persist(ctx context.Context, o Options, stage Stage, do attempt) error {
	o.Observe(Event{Stage: stage})
	pause, last := o.RetryMin, ""
	var refusedSince time.Time
	for {
		err := do(ctx)
		var f fatal
		switch {
		case err == nil:
			o.Observe(Event{Stage: stage, Done: true})
			return nil
		case ctx.Err() != nil && errors.Is(err, ctx.Err()): // whatever it took that for
			return gaveUp(ctx, o, stage, last)
		case errors.As(err, &f):
			return fmt.Errorf("hand over (%s): %w", stage, err)
		case ctx.Err() != nil:
			return gaveUp(ctx, o, stage, last)
		case !errors.Is(err, errRefused):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		case time.Since(refusedSince) > o.Grace:
			return fmt.Errorf("hand over (%s): %w", stage, err)
		}
		if text := err.Error(); text != last {
			last = text
			o.Observe(Event{Stage: stage, Waiting: last})
			o.Log.WithField("stage", stage).WithField("reason", last).Info("hand-over waits")
		}
		next := o.Interval
		if _, ok := errors.AsType[waitsFor](err); !ok {
			next, pause = pause, min(2*pause, o.RetryMax)
		} else {
			pause = o.RetryMin
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return gaveUp(ctx, o, stage, last)
		}
	}
}

// gaveUp says what the hand-over was waiting for when its time was over or it was asked to stop.
func gaveUp(ctx context.Context, o Options, stage Stage, last string) error {
	if last == "" {
		last = "it had just begun"
	}
	if errors.Is(context.Cause(ctx), errDeadline) {
		return fmt.Errorf("hand over (%s): not done within %s: %s. The bootstrap host must stay until it is: mend this and "+
			"run dayone handover on it", stage, o.Deadline, last)
	}
	return fmt.Errorf("hand over (%s): stopped, the next run goes on: %s: %w", stage, last, ctx.Err())
}
