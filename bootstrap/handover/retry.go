package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/registry/transfer"
)

// fatal is a failure that no waiting mends.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// waitsFor is what a stage waits for; it is no failure.
type waitsFor struct{ what string }

func (w waitsFor) Error() string { return w.what }

// errRefused marks an API server that does not take the credentials, which it may do while it starts.
var errRefused = errors.New(
	"the cluster refuses the hand-over's credentials: it needs those of a cluster administrator; correct --kubeconfig and run it again")

// ofRegistry says what a registry's failure means for the hand-over.
func ofRegistry(err error, permanent string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case transfer.Temporary(err) || errors.Is(err, transfer.ErrUnavailable):
		return err
	}
	return fatal{fmt.Errorf("%w: %s", err, permanent)}
}

// ofCluster says what an API server's failure means.
func ofCluster(err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return fmt.Errorf("%w (%w)", err, errRefused)
	case meta.IsNoMatchError(err):
		return fmt.Errorf(
			"%w: the cluster does not know this kind yet: dayone cluster install brings it, or the release's operators do", err)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return fatal{fmt.Errorf("%w: correct the object in the install directory and run dayone bootstrap again", err)}
	case errors.As(err, &network):
		return fmt.Errorf("the cluster does not answer: %w", err)
	}
	return err
}

// attempt is one stage's work. It is called until it is done.
type attempt func(context.Context) error

// persist repeats a stage: at once every Interval while it waits for something, after pauses that double when it fails.
func (r *run) persist(ctx context.Context, stage Stage, do attempt) error {
	r.o.Observe(Event{Stage: stage})
	pause, told := r.o.RetryMin, ""
	var refusedSince time.Time
	for {
		err := do(ctx)
		var f fatal
		switch {
		case err == nil:
			r.o.Observe(Event{Stage: stage, Done: true})
			return nil
		case errors.As(err, &f):
			return fmt.Errorf("hand over (%s): %w", stage, f.error)
		case ctx.Err() != nil:
			return r.gaveUp(ctx, stage, told)
		case !errors.Is(err, errRefused):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		case time.Since(refusedSince) > r.o.Grace:
			return fmt.Errorf("hand over (%s): %w", stage, err)
		}
		r.reconnect(err)
		if text := err.Error(); text != told {
			told = text
			r.o.Observe(Event{Stage: stage, Waiting: told})
			r.o.Log.WithField("stage", stage).WithField("reason", told).Info("hand-over waits")
		}
		next := r.o.Interval
		var w waitsFor
		if !errors.As(err, &w) {
			next, pause = pause, min(2*pause, r.o.RetryMax)
		} else {
			pause = r.o.RetryMin
		}
		if !sleep(ctx, next) {
			return r.gaveUp(ctx, stage, told)
		}
	}
}

// reconnect drops the way to a cluster that does not answer on it any more.
func (r *run) reconnect(err error) {
	var network net.Error
	if errors.As(err, &network) {
		r.cluster = nil
	}
}

// gaveUp says what the hand-over was waiting for when its time was over or it was told to stop.
func (r *run) gaveUp(ctx context.Context, stage Stage, told string) error {
	if told == "" {
		told = "it had just begun"
	}
	if errors.Is(context.Cause(ctx), errDeadline) {
		return fmt.Errorf(
			"hand over (%s): not done within %s: %s. The bootstrap host must stay until it is: mend this and run dayone handover on it", stage, r.o.Deadline, told)
	}
	return fmt.Errorf("hand over (%s): stopped, the next run goes on: %s: %w", stage, told, ctx.Err())
}

// sleep waits and tells whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
