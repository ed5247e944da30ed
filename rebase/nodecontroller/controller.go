package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// Name is the controller's, in logs, metrics and events.
const Name = "node-controller"

// Preflight checks an image before the first node of a pool is told to go to it: that it can be pulled as the nodes
// pull it, is for their architecture, boots, and carries the config. An error says what is wrong; the pool waits and it
// is asked again.
type Preflight interface {
	Check(ctx context.Context, q Question) error
}

// Question is what a Preflight is asked.
type Question struct {
	Pool   string
	Target target.Target
	// Architectures of the pool's nodes, in Go's words, each once.
	Architectures []string
	// PreBuilt: the admin has named the image; nobody in the cluster built it.
	PreBuilt bool
}

// Options of the controller. The zero value works.
type Options struct {
	// Log gets what is decided; default: nothing.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Self is the node that the controller runs on: of a control plane it goes last. Default: none.
	Self string
	// Preflight is asked before an image is delivered; default: none is asked.
	Preflight Preflight
	// Metrics gets the controller's; default: none.
	Metrics prometheus.Registerer
	// Foreseen lets a target wait until the policy controller has published what it does to the pool's nodes. Default: it
	// does not wait.
	Foreseen bool
}

// workers is how many pools are looked at side by side, so that a registry that does not answer holds up its own pool
// only.
const workers = 4

// Reconciler brings one pool's nodes to its target. Requests are pools' names.
type Reconciler struct {
	client  client.Client
	events  events.EventRecorder
	o       Options
	checked checks
	unseen  unseen
	metrics *metrics
	view    *fleet.View
	arrived rollout.Arrivals
	// imageless: the cluster's own MachineConfigNodes have no place for an image, as in OpenShift's default feature set.
	// What is asked for in vain is not asked for at every look.
	imageless atomic.Bool
	// quorum lets one pool of the control plane decide at a time: each sees what the other has told.
	quorum sync.Mutex
}

// New makes a reconciler. c's reads may come from a cache. It reads nodes with c, too: of thousands, SetupWithManager's
// reads faster.
func New(c client.Client, recorder events.EventRecorder, o Options) *Reconciler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		log := logrus.New()
		log.SetLevel(logrus.PanicLevel)
		o.Log = logrus.NewEntry(log)
	}
	return &Reconciler{client: c, view: fleet.New(c), events: recorder, o: o}
}

// SetupWithManager lets mgr run the controller. mgr's cache may have CacheOptions.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetEventRecorder(Name), o)
	var err error
	if r.metrics, err = newMetrics(o.Metrics); err == nil {
		r.view, err = fleet.Cached(mgr.GetCache())
	}
	if err == nil {
		err = r.watch(mgr)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// Reconcile looks at one pool.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	s, err := r.read(ctx, req.Name)
	if err != nil || s == nil {
		return reconcile.Result{}, err
	}
	if len(s.Quorum) > 0 {
		r.quorum.Lock()
		defer r.quorum.Unlock()
		if s, err = r.read(ctx, req.Name); err != nil || s == nil { // another one may have told a node meanwhile
			return reconcile.Result{}, err
		}
	}
	if r.stale(s) {
		return reconcile.Result{RequeueAfter: gather}, nil
	}
	now := r.o.Now()
	r.arrived.Settle(s.Look, now)
	plan := s.Plan(now)
	r.metrics.decided(time.Since(began))
	plan = r.checked.pass(ctx, r.o, s, plan)
	told := r.tell(ctx, s, plan)
	err = errors.Join(told, r.prefetch(ctx, s, plan), r.machineConfigNodes(ctx, s, plan), r.report(ctx, s, plan))
	s.again(plan.LookAgain)
	return reconcile.Result{RequeueAfter: s.lookAgain}, err
}
