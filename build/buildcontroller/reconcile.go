package buildcontroller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/build/decide"
)

// soon is when to look again after somebody else has written first.
const soon = 100 * time.Millisecond

// Reconciler does what build/decide says, for one MachineOSConfig at a time.
type Reconciler struct {
	// client reads from the cache, live from the API.
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	o       Options
	slots   *slots
	wishes  *wishes
	waiters *waiters
	images  *imageLock
	metrics *metrics
	// refusals are of registries, when images are to be deleted.
	refusals *refusals
}

// New makes the reconciler. live must read from the API itself.
func New(c client.Client, live client.Reader, recorder events.EventRecorder, o Options) (*Reconciler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Reconciler{client: c, live: live, events: recorder, o: o, slots: newSlots(o.Parallel), wishes: newWishes(),
		waiters: newWaiters(), images: &imageLock{}, metrics: m, refusals: &refusals{}}, nil
}

// Reconcile looks at one MachineOSConfig and takes the next steps.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	x := &run{Reconciler: r, name: request.Name, now: r.o.Now(), log: r.o.Log.WithField("machineosconfig", request.Name),
		gone: map[string]bool{}}
	err := x.steps(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		x.log.WithError(err).Debug("somebody else wrote first")
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: x.after}, nil
}

func (x *run) steps(ctx context.Context) error {
	if err := x.load(ctx, false); err != nil {
		return err
	}
	if x.config == nil || x.config.DeletionTimestamp != nil {
		return x.dismantle(ctx)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"finish deletions", x.depart},
		{"observe Jobs", x.observe},
		{"decide", x.decide},
		{"act", x.act},
		{"settle wishes", x.settle},
		{"tidy", x.tidy},
		{"report", x.report},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// decide finds out what is asked for and what is to be done. Before anything is changed it looks at the API itself: the
// cache may be behind what this process did a moment ago. So it does where a place is held for a build that the cache
// does not know, which may never have been made.
func (x *run) decide(ctx context.Context) error {
	if err := x.consider(ctx); err != nil {
		return err
	}
	if !x.changes() && !x.slots.unknown(x.name, x.own) {
		return nil
	}
	if err := x.load(ctx, true); err != nil {
		return err
	}
	if x.config == nil || x.config.DeletionTimestamp != nil {
		return x.moved("MachineOSConfig")
	}
	return x.consider(ctx)
}

// moved makes the next look come soon.
func (x *run) moved(what string) error {
	return apierrors.NewConflict(mcfgResource("machineosconfigs"), x.name, fmt.Errorf("%s has changed meanwhile", what))
}

func (x *run) consider(ctx context.Context) error {
	var err error
	if x.wanted, err = x.want(ctx, x.config, x.pool, x.own); err != nil {
		return err
	}
	if err := x.takeOver(ctx); err != nil {
		return err
	}
	if err := x.input(ctx); err != nil {
		return err
	}
	x.d = decide.Decide(x.in)
	return nil
}

// changes tells whether the decision leads to more than a report.
func (x *run) changes() bool {
	if len(x.d.Interrupt) > 0 || len(x.d.Forget) > 0 || x.d.Action.Starts() {
		return true
	}
	switch x.d.Action {
	case decide.Reuse:
		return true
	case decide.None:
		return x.labelsDiffer()
	case decide.Wait:
		b := x.build(x.d.BuildName)
		return x.d.Reason == decide.ReasonBuilding && b != nil && fresh(b)
	}
	return false
}

func (x *run) act(ctx context.Context) error {
	if x.d.Action == decide.Reuse {
		if err := x.verify(ctx); err != nil {
			return err
		}
	}
	if x.d.Action.Starts() {
		if err := x.prepare(ctx); err != nil {
			return err
		}
	}
	for _, name := range x.d.Interrupt {
		if err := x.interrupt(ctx, x.build(name)); err != nil {
			return err
		}
	}
	x.again(x.d.After)
	switch {
	case x.d.Action.Starts():
		return x.begin(ctx)
	case x.d.Action == decide.Reuse:
		return x.reuse(ctx)
	case x.d.Action == decide.None:
		return x.relabel(ctx, x.build(x.d.BuildName))
	case x.d.Action == decide.Wait && x.d.Reason == decide.ReasonBuilding:
		return x.ensure(ctx, x.build(x.d.BuildName))
	}
	return nil
}
