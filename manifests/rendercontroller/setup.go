package rendercontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SetupWithManager adds the controller to a manager whose scheme has the groups machineconfiguration, config and
// operator (v1alpha1) of OpenShift. Kinds of the latter two that the API does not have when it is called are not
// watched.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	r := &Reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), o: o.withDefaults()}
	known := map[string]bool{}
	r.known = func(o client.Object) bool { return known[fmt.Sprintf("%T", o)] }
	b := ctrl.NewControllerManagedBy(mgr).Named("render").
		For(&mcfgv1.MachineConfigPool{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			metaChanged()))).
		Watches(&mcfgv1.MachineConfig{}, r.settled(r.ofConfig),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, metaChanged()))).
		Watches(&mcfgv1.MachineOSConfig{}, r.settled(r.all),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, metaChanged()))).
		Watches(&mcfgv1.MachineOSBuild{}, r.settled(ofBuild), builder.WithPredicates(goneOnly())).
		Watches(&corev1.Node{}, r.settled(ofNode), builder.WithPredicates(configsChanged()))
	for _, kind := range []client.Object{&mcfgv1.ControllerConfig{}, &mcfgv1.KubeletConfig{},
		&mcfgv1.ContainerRuntimeConfig{}, &configv1.FeatureGate{},
		&operatorv1alpha1.ImageContentSourcePolicy{}, &configv1.ImageDigestMirrorSet{}, &configv1.ImageTagMirrorSet{},
		&configv1.Image{}} {
		gvk, err := apiutil.GVKForObject(kind, mgr.GetScheme())
		if err != nil {
			return fmt.Errorf("find kind of %T: %w", kind, err)
		}
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			if !meta.IsNoMatchError(err) {
				return fmt.Errorf("look for kind %s: %w", gvk.Kind, err)
			}
			continue
		}
		known[fmt.Sprintf("%T", kind)] = true
		b = b.Watches(kind, r.settled(r.all))
	}
	if err := b.WithOptions(controller.Options{MaxConcurrentReconciles: r.o.Workers}).Complete(r); err != nil {
		return fmt.Errorf("start render controller: %w", err)
	}
	return nil
}

// settled wakes pools a while after a change, so that several changes are one rendering.
func (r *Reconciler) settled(pools func(context.Context, client.Object) []string) handler.EventHandler {
	add := func(ctx context.Context, o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, name := range pools(ctx, o) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, r.o.Settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.ObjectOld, q)
			add(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.Object, q)
		},
	}
}

// all are the names of all pools.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []string {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools); err != nil {
		r.o.Log.WithError(err).Warn("pools not listed")
		return nil
	}
	var names []string
	for i := range pools.Items {
		names = append(names, pools.Items[i].Name)
	}
	return names
}

// ofConfig is the pool of a rendered config; any other MachineConfig may concern all.
func (r *Reconciler) ofConfig(ctx context.Context, o client.Object) []string {
	if !isRendered(o) {
		return r.all(ctx, o)
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{owner.Name}
	}
	return poolOf(o.GetName())
}

func ofBuild(_ context.Context, o client.Object) []string {
	if b, ok := o.(*mcfgv1.MachineOSBuild); ok {
		return poolOf(b.Spec.MachineConfig.Name)
	}
	return nil
}

func ofNode(_ context.Context, o client.Object) []string {
	var pools []string
	for _, name := range nodeConfigs(o) {
		pools = append(pools, poolOf(name)...)
	}
	return slices.Compact(pools)
}

// poolOf is the pool in the name of a rendered config.
func poolOf(config string) []string {
	rest, ok := strings.CutPrefix(config, "rendered-")
	at := strings.LastIndexByte(rest, '-')
	if !ok || at <= 0 {
		return nil
	}
	return []string{rest[:at]}
}

// metaChanged lets changes of labels and annotations pass.
func metaChanged() predicate.Predicate {
	return predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// configsChanged lets nodes pass whose configs have changed: one that they had may be old now.
func configsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(nodeConfigs(e.ObjectOld), nodeConfigs(e.ObjectNew))
	}}
}

// goneOnly lets deletions pass.
func goneOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
