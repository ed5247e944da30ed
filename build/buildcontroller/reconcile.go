package buildcontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/build/decide"
)

// Pauses before the next reconcile where no event announces it.
const (
	// soon is the pause after another writer was first.
	soon = 100 * time.Millisecond
	// retrySecret is the pause before a missing Secret is read again: Secrets are read when needed and not watched.
	retrySecret = 15 * time.Second
)

// reconciler keeps the image of one MachineOSConfig's pool built. Its fields do not change after newReconciler.
type reconciler struct {
	api      api
	images   imageAccess
	recorder recorder
	memory   *memory
	o        Options
	// steps are those of a reconcile: stepsFor, or besideSteps.
	steps func(observation) []step
}

// newReconciler makes the reconciler. live must read from the API itself.
func newReconciler(c client.Client, live client.Reader, announce events.EventRecorder, o Options) (*reconciler,
	error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	edge := newAPI(c, live, o.Namespace)
	return &reconciler{api: edge, memory: newMemory(o.Parallel), o: o, steps: stepsFor,
		images:   imageAccess{registries: o.Images, api: edge, ca: o.RegistryCA, pullSecret: o.PullSecret},
		recorder: recorder{events: announce, metrics: m}}, nil
}

// scope is what the steps of one reconcile work with. It does not change meanwhile.
type scope struct {
	*reconciler
	// name is the MachineOSConfig's.
	name string
	now  time.Time
	log  *logrus.Entry
}

// state is what a reconcile knows. A step takes it and returns the next one; it passes on what it does not change.
type state struct {
	observation
	desired  desired
	input    decide.Input
	decision decide.Decision
	// keys are there when a build begins.
	keys *keyring
	// held says why a running build makes no progress.
	held string
	// after is when to reconcile again; 0 means that an event will come.
	after time.Duration
}

// again asks for another reconcile; the earliest one counts.
func (s state) again(after time.Duration) state {
	if after > 0 && (s.after == 0 || after < s.after) {
		s.after = after
	}
	return s
}

// step is one part of a reconcile.
type step struct {
	name string
	run  func(context.Context, scope, state) (state, error)
}

// stepsFor lists the steps of a reconcile in their order.
func stepsFor(o observation) []step {
	if o.gone() {
		return []step{
			{"read builds", readBuilds},
			{"finish deletions", finishDeletions},
			{"remove builds", removeBuilds},
			{"release pool", releasePool},
		}
	}
	return []step{
		{"finish deletions", finishDeletions},
		{"hold builds", holdBuilds},
		{"follow Jobs", followJobs},
		{"decide", makeDecision},
		{"prepare", prepare},
		{"act", act},
		{"settle rebuild request", settleRebuild},
		{"tidy", tidy},
		{"report", reportStatus},
		{"report to pool", reportPool},
	}
}

// Reconcile takes the next steps for one MachineOSConfig.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	log := r.o.Log.WithField("machineosconfig", request.Name)
	x := scope{reconciler: r, name: request.Name, now: r.o.Now(), log: log}
	after, err := x.run(ctx)
	if p := problemOf(err); p != nil {
		x.log.WithField("reason", p.Reason).WithError(err).Debug("reconcile ends early")
		return reconcile.Result{RequeueAfter: p.After}, nil
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		x.log.WithError(err).Debug("another writer was first")
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{RequeueAfter: after}, err
}

func (x scope) run(ctx context.Context) (time.Duration, error) {
	seen, err := x.api.observe(ctx, x.name, false)
	if err != nil {
		return 0, err
	}
	if !seen.gone() {
		x.recorder.metrics.saw(seen)
	}
	s := state{observation: seen}
	for _, step := range x.steps(seen) {
		if s, err = step.run(ctx, x, s); err != nil {
			return 0, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return s.after, nil
}

// waiting is the error of what ends by itself: it is tried again after a pause, or, when that is 0, with an event.
func waiting(after time.Duration, reason, format string, args ...any) error {
	return &decide.Problem{Reason: reason, Message: fmt.Sprintf(format, args...), Waits: true, After: after}
}

// stalled is the error of what an admin has to mend. All other errors are tried again with a backoff.
func stalled(reason, format string, args ...any) error {
	return &decide.Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// problemOf gives the problem behind an error of waiting or stalled, otherwise nil.
func problemOf(err error) *decide.Problem {
	var p *decide.Problem
	errors.As(err, &p)
	return p
}

// overtaken ends a reconcile whose observation is no longer true.
func overtaken(what string) error {
	return waiting(soon, "Overtaken", "%s has changed meanwhile", what)
}
