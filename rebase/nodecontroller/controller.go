package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/rebase/rollout"
)

// Name is the controller's, in logs, metrics and events.
const Name = "node-controller"

// Preflight checks an image before the first node of a pool is told to go to it: that it can be pulled as the nodes pull it, is for
// their architecture, boots, and carries the config. An error says what is wrong; the pool waits and it is asked again.
type Preflight interface {
	Check(ctx context.Context, q Question) error
}

// Question is what a Preflight is asked.
type Question struct {
	Pool   string
	Target rollout.Target
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
	// Foreseen lets a target wait until the policy controller has published what it does to the pool's nodes. Default: it does not wait.
	Foreseen bool
}

// workers is how many pools are looked at side by side, so that a registry that does not answer holds up its own pool only.
const workers = 4

// Reconciler brings one pool's nodes to its target. Requests are pools' names.
type Reconciler struct {
	client  client.Client
	events  events.EventRecorder
	o       Options
	checked checks
}

// New makes a reconciler. c's reads may come from a cache.
func New(c client.Client, recorder events.EventRecorder, o Options) *Reconciler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		log := logrus.New()
		log.SetLevel(logrus.PanicLevel)
		o.Log = logrus.NewEntry(log)
	}
	return &Reconciler{client: c, events: recorder, o: o}
}

// SetupWithManager lets mgr run the controller.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetEventRecorder(Name), o)
	all := handler.EnqueueRequestsFromMapFunc(r.allPools)
	err := ctrl.NewControllerManagedBy(mgr).Named(Name).
		For(&mcfgv1.MachineConfigPool{}).
		Watches(&corev1.Node{}, all).
		Watches(&mcfgv1.MachineOSConfig{}, handler.EnqueueRequestsFromMapFunc(poolOfConfig)).
		Watches(&mcfgv1.MachineOSBuild{}, all).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// allPools asks for every pool: a node may have moved from one to another.
func (r *Reconciler) allPools(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools); err != nil {
		r.o.Log.WithError(err).Warn("cannot list pools")
		return nil
	}
	out := make([]reconcile.Request, 0, len(pools.Items))
	for i := range pools.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return out
}

func poolOfConfig(_ context.Context, o client.Object) []reconcile.Request {
	mosc, ok := o.(*mcfgv1.MachineOSConfig)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: mosc.Spec.MachineConfigPool.Name}}}
}

// Reconcile looks at one pool.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.read(ctx, req.Name)
	if err != nil || s == nil {
		return reconcile.Result{}, err
	}
	plan := r.checked.pass(ctx, r.o, s, s.Plan(r.o.Now()))
	told := r.tell(ctx, s, plan)
	err = errors.Join(told, r.prefetch(ctx, s, plan), r.machineConfigNodes(ctx, s, plan), r.report(ctx, s, plan))
	after := plan.LookAgain
	if s.lookAgain > 0 && (after == 0 || s.lookAgain < after) {
		after = s.lookAgain
	}
	return reconcile.Result{RequeueAfter: after}, err
}
