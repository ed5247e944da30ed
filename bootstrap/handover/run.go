package handover

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// run is one hand-over.
type run struct {
	o       Options
	files   *files
	ca      string
	cluster client.Client
	// verified are the references that this run has seen whole in their final registry.
	verified map[string]bool
	// kept are objects that somebody in the cluster has changed since.
	kept map[string]string
}

// errDeadline ends a hand-over whose time is over.
var errDeadline = errors.New("the hand-over's deadline has passed")

// Run hands over. When it returns without an error the bootstrap host is needed by nobody: every image that anybody
// refers to is in its final registry, the cluster wants of its nodes what they run, nodes no longer trust the bootstrap
// registry, and nobody has an account there. It may be killed at any point and run again.
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
	r := &run{o: o, verified: map[string]bool{}, kept: map[string]string{}}
	if r.files, err = newFiles(o.TempDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.files.remove()) }()
	if r.ca, err = r.files.authorities(o.Plan, o.FinalCAFile); err != nil {
		return err
	}
	for _, s := range []struct {
		stage Stage
		do    attempt
	}{
		{StageImages, r.copyImages},
		{StageObjects, r.applyObjects},
		{StageAgree, r.agree},
		{StageOrphans, r.orphans},
		{StageTrust, r.endTrust},
		{StageRevoke, o.Revoke},
	} {
		if err := r.persist(ctx, s.stage, s.do); err != nil {
			return err
		}
	}
	o.Log.Info("hand-over is done: the bootstrap host may go")
	return nil
}

// connect reaches the cluster once and keeps the way.
func (r *run) connect(ctx context.Context) error {
	if r.cluster != nil {
		return nil
	}
	c, err := r.o.Connect(ctx)
	if err != nil {
		return ofCluster(err)
	}
	r.cluster = c
	return nil
}
