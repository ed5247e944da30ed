package disruptioncontroller

import (
	"context"
	"fmt"
	"maps"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dayone.dev/dayone/rebase/fleet"
)

// Name is the controllers', in logs, metrics and as owner of fields.
const Name = "disruption-controller"

// objectName is the one MachineConfiguration's. Source: openshift/api, operator/v1.
const objectName = "cluster"

// lookAgain is how often a plan that waits for pods is computed anew: PodDisruptionBudgets are not watched.
const lookAgain = time.Minute

// gather is for how long news of nodes are gathered before their pools' plans are computed anew. It is far below what a
// node needs for its way, and nothing waits for it but a node that comes with a config that no other node of its pool
// has.
const gather = time.Second

// Options of the controllers. The zero value works.
type Options struct {
	// Log gets what is published; default: nothing.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Reconciler publishes. Make it with New.
type Reconciler struct {
	client client.Client
	// live reads pods and PodDisruptionBudgets, of which a cluster has too many to keep.
	live client.Reader
	view *fleet.View
	o    Options
}

// New makes a reconciler. c's reads may come from a cache, those of live must not.
func New(c client.Client, live client.Reader, o Options) *Reconciler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		log := logrus.New()
		log.SetLevel(logrus.PanicLevel)
		o.Log = logrus.NewEntry(log)
	}
	return &Reconciler{client: c, live: live, view: fleet.New(c), o: o}
}

// SetupWithManager lets mgr run both controllers: one for the rules, one for the pools' plans.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	var err error
	if r.view, err = fleet.Cached(mgr.GetCache()); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	one := reconcile.Request{NamespacedName: client.ObjectKey{Name: objectName}}
	toOne := handler.EnqueueRequestsFromMapFunc(func(context.Context,
		client.Object) []reconcile.Request {
		return []reconcile.Request{one}
	})
	err = ctrl.NewControllerManagedBy(mgr).Named("disruption-policies").
		For(&opv1.MachineConfiguration{}).
		Watches(&mcfgv1.MachineConfigPool{}, toOne, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfig{}, toOne, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		// The object is made even where nothing else is there yet.
		WatchesRawSource(source.Func(func(_ context.Context,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(one)
			return nil
		})).
		Complete(reconcile.Func(r.Policies))
	if err != nil {
		return fmt.Errorf("set up disruption-policies: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(r.allPools)
	err = ctrl.NewControllerManagedBy(mgr).Named("disruption-plans").
		For(&mcfgv1.MachineConfigPool{}, builder.WithPredicates(poolChanged())).
		Watches(&corev1.Node{}, r.gathered(), builder.WithPredicates(metadataChanged())).
		Watches(&opv1.MachineConfiguration{}, all).
		Watches(&mcfgv1.MachineConfig{}, all, builder.WithPredicates(metadataChanged())).
		Watches(&mcfgv1.MachineOSConfig{}, all).
		Watches(&mcfgv1.MachineOSBuild{}, all).
		Complete(reconcile.Func(r.Plan))
	if err != nil {
		return fmt.Errorf("set up disruption-plans: %w", err)
	}
	return nil
}

// metadataChanged keeps out heartbeats: a node's record is in its annotations.
func metadataChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
}

// poolChanged keeps out what others write into a pool's status, which is much while nodes move.
func poolChanged() predicate.Predicate {
	said := func(o client.Object) mcfgv1.MachineConfigPoolCondition {
		pool, _ := o.(*mcfgv1.MachineConfigPool)
		for _, c := range pool.Status.Conditions {
			if c.Type == ConditionEffectKnown {
				return c
			}
		}
		return mcfgv1.MachineConfigPoolCondition{}
	}
	return predicate.Or(predicate.GenerationChangedPredicate{}, metadataChanged(),
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return said(e.ObjectOld) != said(e.ObjectNew) }})
}

// gathered asks for the pools' plans some time after a node has changed: when a whole fleet moves, one look stands for
// many nodes.
func (r *Reconciler) gathered() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, o client.Object, q queue) {
		for _, request := range r.allPools(ctx, o) {
			q.AddAfter(request, gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

func (r *Reconciler) allPools(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		r.o.Log.WithError(err).Warn("cannot list pools")
		return nil
	}
	out := make([]reconcile.Request, 0, len(pools.Items))
	for i := range pools.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return out
}
