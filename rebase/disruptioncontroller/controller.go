package disruptioncontroller

import (
	"cmp"
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

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/fleet"
)

// name is the controllers', in logs, metrics and as owner of fields.
const name = "disruption-controller"

// objectName is the one MachineConfiguration's. Source: openshift/api, operator/v1.
const objectName = "cluster"

// recompute is how often a plan that waits for pods is computed again: PodDisruptionBudgets are not watched.
const recompute = time.Minute

// gather is for how long changes of nodes are gathered before their pools' plans are computed again. It is far below
// what a node needs for its transition, and nothing waits for it but a node that comes with a config that no other node
// of its pool has.
const gather = time.Second

// Options of the controllers. The zero value works.
type Options struct {
	// Log gets what is published; default: nothing.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Verbosity takes the MachineConfiguration's operatorLogLevel whenever it may have changed; default: nobody does.
	Verbosity func(opv1.LogLevel)
}

// withDefaults fills in what the caller left out.
func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Verbosity == nil {
		o.Verbosity = func(opv1.LogLevel) {}
	}
	return o
}

// SetupWithManager lets mgr run both controllers: one for the rules, one for the pools' plans.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	plans := NewPlans(mgr.GetClient(), mgr.GetAPIReader(), o)
	var err error
	if plans.view, err = fleet.Cached(mgr.GetCache()); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	if err := setupPolicies(mgr, NewPolicies(mgr.GetClient(), o)); err != nil {
		return fmt.Errorf("set up disruption-policies: %w", err)
	}
	if err := setupPlans(mgr, plans); err != nil {
		return fmt.Errorf("set up disruption-plans: %w", err)
	}
	return nil
}

func setupPolicies(mgr ctrl.Manager, r *Policies) error {
	one := reconcile.Request{NamespacedName: client.ObjectKey{Name: objectName}}
	toOne := handler.EnqueueRequestsFromMapFunc(func(context.Context,
		client.Object) []reconcile.Request {
		return []reconcile.Request{one}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-policies").
		For(&opv1.MachineConfiguration{}).
		Watches(&mcfgv1.MachineConfigPool{}, toOne, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfig{}, toOne, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		// The object is made even where nothing else is there yet.
		WatchesRawSource(source.Func(func(_ context.Context,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(one)
			return nil
		})).
		Complete(r)
}

func setupPlans(mgr ctrl.Manager, r *Plans) error {
	all := handler.EnqueueRequestsFromMapFunc(r.allPools)
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-plans").
		For(&mcfgv1.MachineConfigPool{}, builder.WithPredicates(poolChanged())).
		Watches(&corev1.Node{}, r.gathered(), builder.WithPredicates(metadataChanged())).
		Watches(&opv1.MachineConfiguration{}, all).
		Watches(&mcfgv1.MachineConfig{}, all, builder.WithPredicates(metadataChanged())).
		Watches(&mcfgv1.MachineOSConfig{}, all).
		Watches(&mcfgv1.MachineOSBuild{}, all).
		Complete(r)
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
