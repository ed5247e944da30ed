package openshift

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
)

// ErrHandOver marks a hand-over whose policy does not let it be tried any longer. Trying again does not help: the node
// keeps its state, and dayone handover ends it there.
var ErrHandOver = errors.New("the images are not handed over, so the bootstrap may not end")

// planDir keeps the hand-over's plan below the state directory, where dayone handover finds it, too.
const planDir = "handover"

// plan is what the stock Machine Config Operator takes over: the objects that it has rendered from here and renders
// again there.
func (f *flow) plan() (*handover.Plan, error) {
	set, err := f.clusterSet()
	if err != nil {
		return nil, err
	}
	out := handover.Outcome{Registry: f.registryHost, Platform: f.Platform, Set: set, Result: &render.Result{},
		Built: f.built, Grounds: map[string]string{},
		Repositories: map[string]string{}, Nodes: map[string]int{}, HandOver: f.in.Sidecar.Config.HandOver,
		OSImageURL:  f.second.OSImageURL,
		Controllers: handover.MCO, KeepTrust: true, FinalCA: string(f.in.RegistryCA)}
	for _, name := range f.pools() {
		p := f.pool(name)
		out.Repositories[name], out.Nodes[name] = p.Repository, f.mastersOf(name)
		request, err := f.buildRequest(p)
		if err != nil {
			return nil, err
		}
		if out.Grounds[name], err = request.Ground(); err != nil {
			return nil, err
		}
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
func (f *flow) mastersOf(pool string) int {
	if !answered(pool) {
		return 0
	}
	if pool == "master" {
		return cmp.Or(f.in.Sidecar.Cluster.ControlPlane, defaultMasters)
	}
	return 1
}

// defaultMasters is the installer's default of controlPlane.replicas.
const defaultMasters = 3

// handOverPause is between two hand-overs of which the first has failed for good: an admin mends a registry meanwhile.
const handOverPause = 30 * time.Second

// handOver gives images and objects to the cluster and only then lets the bootstrap end. Meanwhile nodes pull from the
// embedded registry.
func (f *flow) handOver(ctx context.Context) error {
	plan, err := f.plan()
	if err != nil {
		return err
	}
	if err := plan.Write(f.path(planDir)); err != nil {
		return err
	}
	o := f.HandOver
	o.Plan, o.Log = plan, f.Log.WithField("phase", phaseHandOver)
	o.Source = handover.Source{Host: f.registryHost, CAFile: f.id.CAFile, AuthFile: f.id.PullAuth}
	o.TempDir, o.Observe = f.path("tmp"), f.observeHandOver(o.Observe)
	o.Revoke = func(context.Context) error { return bootstrap.MarkHandedOver(f.StateDir, f.registryHost, "") }
	policy := cmp.Or(plan.Policy, handover.PolicyWait)
	if policy == handover.PolicyDeadline {
		// A run that was killed has used up its share.
		left := time.Until(f.since("handover-began").
			Add(cmp.Or(plan.Deadline.Duration(), installconfig.DefaultHandOverDeadline)))
		o.Deadline = max(left, time.Second)
	}
	return f.besideServices(ctx, func(ctx context.Context) error { return f.persist(ctx, o, policy) })
}

// persist tries again, where the policy is to wait, after what the hand-over takes for final: the node stays, and
// somebody may mend it.
func (f *flow) persist(ctx context.Context, o handover.Options, policy handover.Policy) error {
	said := ""
	for {
		err := handover.Run(ctx, o)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case policy != handover.PolicyWait:
			return fmt.Errorf("%w: %w", ErrHandOver, err)
		}
		if text := err.Error(); text != said {
			said = text
			f.Log.WithError(err).
				Error("hand-over failed, it is tried again: the bootstrap does not end before it is done, and dayone handover may do it, too")
			f.records.note("hand-over-failed", text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(handOverPause, 15*f.Interval)):
		}
	}
}

// besideServices runs the hand-over as long as the registry serves, and until another process has handed over.
func (f *flow) besideServices(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop := func(err error) error {
		cancel()
		<-ended // its temporary files go
		return err
	}
	look := time.NewTicker(f.Interval)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			cancel()
			return err
		case err := <-f.registry.Err():
			return stop(fmt.Errorf("serve the embedded registry: %w", err))
		case <-look.C:
			if done, err := handover.ReadMark(f.StateDir); err == nil && done != nil {
				return stop(nil)
			}
		}
	}
}

// observeHandOver keeps the stages in the service record, with what each waited for first: the log has the rest.
func (f *flow) observeHandOver(next func(handover.Event)) func(handover.Event) {
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
		_ = bootstrap.Notify("STATUS=hand over, " + string(e.Stage) + ": " + e.Waiting) // for people only
		if next != nil {
			next(e)
		}
	}
}

// since is when something happened first on this node, whichever process saw it: now, when none has.
func (f *flow) since(what string) time.Time {
	file := f.path(what)
	if raw, err := os.ReadFile(file); err == nil {
		if t, err := time.Parse(time.RFC3339Nano, string(raw)); err == nil {
			return t
		}
	}
	now := time.Now()
	_ = renameio.WriteFile(file, []byte(now.Format(time.RFC3339Nano)), 0o600) // without it a later run counts from itself
	return now
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
