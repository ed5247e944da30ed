package openshift

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
)

// ErrHandOver marks a hand-over whose policy does not let it be tried any longer. Trying again does not help: the node
// keeps its state, and dayone handover ends it there.
var ErrHandOver = errors.New("the images are not handed over, so the bootstrap may not end")

// finisher hands over to the unmodified Machine Config Operator.
type finisher struct {
	flow
	layered day1.Layered[firstRendering]
	second  day1.Rendered
}

// Finish gives images and objects to the cluster and only then lets the bootstrap end. Meanwhile nodes pull from the
// embedded registry.
func (f finisher) Finish(ctx context.Context, run *journal.Run) error {
	handOver := f.handOver
	if f.inPlace() {
		handOver = f.stay
	}
	if err := journal.Check(ctx, run, phaseHandOver, handOver); err != nil {
		return err
	}
	return run.Serving(journal.Endpoints{Registry: f.layered.Registry.Address, CAFile: f.layered.Registry.Identity.CAFile})
}

// plan is what MCO takes over: the objects from which it has rendered here and renders again there.
func (f finisher) plan() (*handover.Plan, error) {
	out, err := day1.Outcome(f.host, f.layered)
	if err != nil {
		return nil, err
	}
	y := newLayering(f.host.In, f.layered.Registry, f.layered.Images)
	if out.Set, err = y.handedOver(f.host.In.Set, f.second.OSImageURL); err != nil {
		return nil, err
	}
	out.OSImageURL, out.Controllers, out.KeepTrust = f.second.OSImageURL, handover.MCO, true
	out.Result = &render.Result{}
	for _, name := range names(f.pools()) {
		out.Nodes[name] = f.mastersOf(name)
		config, pool, _, err := rendered(f.at(mcsDir), name)
		if err != nil {
			return nil, err
		}
		pool.Spec.Configuration.Name = config.Name // MCO's bootstrap fills the status only
		out.Result.Configs, out.Result.Pools = append(out.Result.Configs, config), append(out.Result.Pools, pool)
	}
	return handover.Make(out)
}

// mastersOf is how many nodes of a pool must have joined before the bootstrap may end: the control plane's. Others come
// when it has ended, and pull from the final registry.
func (f finisher) mastersOf(pool string) int {
	if !answered(pool) {
		return 0
	}
	cluster := f.host.In.Sidecar.Cluster
	switch all := cmp.Or(cluster.ControlPlane, defaultMasters); {
	case pool != "master":
		return 1
	case cluster.Agent:
		return all - 1 // this host is the last one, and its images go onto its disk
	default:
		return all
	}
}

// defaultMasters is the installer's default of controlPlane.replicas.
const defaultMasters = 3

// handOverPause is between two hand-overs of which the first has failed for good: an admin mends a registry meanwhile.
const handOverPause = 30 * time.Second

func (f finisher) handOver(ctx context.Context) error {
	plan, err := f.plan()
	if err != nil {
		return err
	}
	if err := plan.Write(f.PlanDir()); err != nil {
		return err
	}
	o := f.HandOver
	o.Plan, o.Log, o.Source = plan, f.Log.WithField("phase", phaseHandOver), f.layered.Registry.Source()
	o.TempDir, o.Observe = f.Path("tmp"), f.observeHandOver(o.Observe)
	o.Revoke = func(context.Context) error { return day1.End(f.StateDir, f.host.Registry, "") }
	policy := cmp.Or(plan.Policy, handover.PolicyWait)
	if policy == handover.PolicyDeadline {
		// A run that was killed has used up its share.
		left := time.Until(f.since("handover-began").
			Add(cmp.Or(plan.Deadline.Duration(), installconfig.DefaultHandOverDeadline)))
		o.Deadline = max(left, time.Second)
	}
	defer watchNodes(ctx, f, plan)()
	return f.besideRegistry(ctx, func(ctx context.Context) error { return f.persist(ctx, o, policy) })
}

// persist tries again, where the policy is to wait, after what the hand-over takes for final: the node stays, and
// an admin may mend it.
func (f finisher) persist(ctx context.Context, o handover.Options, policy handover.Policy) error {
	last := ""
	for {
		err := handover.Run(ctx, o)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case policy != handover.PolicyWait:
			return fmt.Errorf("%w: %w", ErrHandOver, err)
		}
		if text := err.Error(); text != last {
			last = text
			f.Log.WithError(err).
				Error("hand-over failed, it is tried again: the bootstrap ends when it is done, and dayone handover may do it, too")
			f.records.note("hand-over-failed", text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(handOverPause, 15*f.Interval)):
		}
	}
}

// besideRegistry runs the hand-over as long as the registry serves, and until another process has handed over.
func (f finisher) besideRegistry(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop := func(err error) error {
		cancel()
		<-ended // its temporary files go
		return err
	}
	poll := time.NewTicker(f.Interval)
	defer poll.Stop()
	for {
		select {
		case err := <-ended:
			cancel()
			return err
		case err := <-f.layered.Registry.Failed():
			return stop(fmt.Errorf("serve the embedded registry: %w", err))
		case <-poll.C:
			if done, err := handover.ReadMark(f.StateDir); err == nil && done != nil {
				return stop(nil)
			}
		}
	}
}

// observeHandOver keeps the stages in the service record, with what each waited for first: the log has the rest.
func (f finisher) observeHandOver(next func(handover.Event)) func(handover.Event) {
	noted := map[handover.Stage]bool{}
	return func(e handover.Event) {
		stage := phaseHandOver + "-" + string(e.Stage)
		switch {
		case e.Done:
			f.records.add(record{Phase: "stage end", Stage: stage, Result: "success"})
		case e.Waiting == "" || !noted[e.Stage]:
			noted[e.Stage] = e.Waiting != ""
			f.records.note(stage, e.Waiting)
		}
		_ = day1.Notify("STATUS=hand over, " + string(e.Stage) + ": " + e.Waiting) // for people only
		if next != nil {
			next(e)
		}
	}
}

// Hold waits until the bootstrap node may go: the installer's report of a complete bootstrap is held back by it.
func Hold(ctx context.Context, stateDir string, interval time.Duration) error {
	for {
		done, err := handover.ReadMark(stateDir)
		if done != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("hold the end of the bootstrap: the images are not handed over yet: %w", ctx.Err()),
				err)
		case <-time.After(interval):
		}
	}
}
