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
)

// Name is the controllers', in logs, metrics and as owner of fields.
const Name = "disruption-controller"

// objectName is the one MachineConfiguration's. Source: openshift/api, operator/v1.
const objectName = "cluster"

// lookAgain is how often a plan that waits for pods is computed anew: PodDisruptionBudgets are not watched.
const lookAgain = time.Minute

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
	return &Reconciler{client: c, live: live, o: o}
}

// SetupWithManager lets mgr run both controllers: one for the rules, one for the pools' plans.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	one := reconcile.Request{NamespacedName: client.ObjectKey{Name: objectName}}
	toOne := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{one} })
	err := ctrl.NewControllerManagedBy(mgr).Named("disruption-policies").
		For(&opv1.MachineConfiguration{}).
		Watches(&mcfgv1.MachineConfigPool{}, toOne, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfig{}, toOne, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		// The object is made even where nothing else is there yet.
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(one)
			return nil
		})).
		Complete(reconcile.Func(r.Policies))
	if err != nil {
		return fmt.Errorf("set up disruption-policies: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(r.allPools)
	err = ctrl.NewControllerManagedBy(mgr).Named("disruption-plans").
		For(&mcfgv1.MachineConfigPool{}).
		Watches(&corev1.Node{}, all, builder.WithPredicates(metadataChanged())).
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
		return !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
}

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
