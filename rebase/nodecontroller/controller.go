package nodecontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// name is the controller's, in logs, metrics and events.
const name = "node-controller"

// Preflight checks an image before the controller sends the first node of a pool to it: that the image can be pulled as
// the nodes pull it, is for their architecture, boots, and carries the config. An error says what is wrong; the pool
// waits and the controller checks again.
type Preflight interface {
	Check(ctx context.Context, q Question) error
}

// Question is what a Preflight checks.
type Question struct {
	Target target.Target
	// Architectures of the pool's nodes, in Go's words, each once.
	Architectures []string
	// PreBuilt: the admin has named the image; no build of the cluster made it.
	PreBuilt bool
}

// Options of the controller. The zero value works.
type Options struct {
	// Log gets what the controller decides; default: no log.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Self is the node that the controller runs on: it goes last in its pool. Default: none.
	Self string
	// Preflight checks images before they are delivered; default: no check.
	Preflight Preflight
	// Metrics gets the controller's metrics; default: no metrics.
	Metrics prometheus.Registerer
	// Foreseen lets a target wait until the policy controller has published what it does to the pool's nodes. Default: it
	// does not wait.
	Foreseen bool
}

// workers is how many pools are reconciled in parallel, so that a registry that does not answer delays only its own
// pool.
const workers = 4

// Reconciler brings one pool's nodes to its target. Requests are pools' names.
type Reconciler struct {
	o       Options
	view    *fleet.View
	writer  *writer
	checks  checks
	arrived rollout.Arrivals
	// metrics are nil when nobody asked for them.
	metrics *metrics
	// quorum lets one pool of the control plane decide at a time, so that each sees what the other has written.
	quorum sync.Mutex
}

// New makes a reconciler. c's reads may come from a cache. It reads nodes with c, too: of thousands, SetupWithManager's
// reads faster.
func New(c client.Client, recorder events.EventRecorder, o Options) *Reconciler {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	return &Reconciler{o: o, view: fleet.New(c), writer: &writer{client: c, events: recorder, log: o.Log, now: o.Now}}
}

// SetupWithManager lets mgr run the controller. mgr's cache may have CacheOptions.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetEventRecorder(name), o)
	err := r.measure(o.Metrics)
	if err == nil {
		r.view, err = fleet.Cached(mgr.GetCache())
	}
	if err == nil {
		err = watch(mgr, r, watcher{client: mgr.GetClient(), log: r.o.Log,
			events: r.writer.events})
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

// measure registers the metrics where somebody reads them.
func (r *Reconciler) measure(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	r.metrics = newMetrics()
	return to.Register(r.metrics)
}

// step is one thing that a reconciliation writes: it reads the decision and writes objects. It returns after which time
// the pool must be reconciled again; 0: no need.
type step func(ctx context.Context, w *writer, d *decision) (time.Duration, error)

// steps in the order in which they run. One that fails does not keep the others from running.
var steps = [...]step{ //nolint:gochecknoglobals // a constant in all but type
	deliver, prefetch, pin, mark, writeRecords, writeStatus,
}

// Reconcile observes one pool, decides, and writes what follows.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	pool, err := r.observe(ctx, req.Name)
	if err == nil && pool == nil {
		r.metrics.forget(req.Name)
	}
	if err != nil || pool == nil {
		return reconcile.Result{}, err
	}
	if len(pool.Quorum) > 0 {
		r.quorum.Lock()
		defer r.quorum.Unlock()
		// The other pool of the control plane may have sent a node meanwhile.
		if pool, err = r.observe(ctx, req.Name); err != nil || pool == nil {
			return reconcile.Result{}, err
		}
	}
	if r.writer.unseen.hides(pool) {
		return reconcile.Result{RequeueAfter: gather}, nil
	}
	d := r.decide(ctx, pool, began)
	var errs []error
	for _, step := range steps {
		after, err := step(ctx, r.writer, d)
		d.again(after)
		errs = append(errs, err)
	}
	return reconcile.Result{RequeueAfter: d.requeueAfter}, errors.Join(errs...)
}

// observe reads a pool and its nodes; nil: there is no such pool.
func (r *Reconciler) observe(ctx context.Context, name string) (*rollout.PoolView, error) {
	c, err := r.view.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	c.Foreseen = r.o.Foreseen
	if r.o.Self != "" {
		c.Deferred = map[string]string{r.o.Self: "the controller itself runs on it"}
	}
	pool := c.View(name)
	if pool == nil {
		return nil, nil
	}
	return pool, holdOptOut(ctx, r.writer.client, pool)
}

// decide plans which nodes go next and checks the image that they go to.
func (r *Reconciler) decide(ctx context.Context, pool *rollout.PoolView, began time.Time) *decision {
	now := r.o.Now()
	r.arrived.Settle(pool, now)
	d := &decision{PoolView: pool, plan: pool.Plan(now), effectRequired: r.o.Foreseen}
	took := time.Since(began)
	r.checks.apply(ctx, r.o, d)
	r.metrics.note(d, now, status(d, now), took)
	d.again(d.plan.RecheckAfter)
	return d
}
