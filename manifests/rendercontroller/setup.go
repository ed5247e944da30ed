package rendercontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/sirupsen/logrus"
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

	"dayone.dev/dayone/manifests/rendercontroller/inputs"
)

// SetupWithManager adds the controller to a manager whose scheme has the groups machineconfiguration, config and
// operator (v1alpha1) of OpenShift. Kinds of the latter two that the API does not have when it is called are not
// watched.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	o = o.withDefaults()
	known := map[string]bool{}
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), o: o,
		known: func(o client.Object) bool { return known[fmt.Sprintf("%T", o)] },
		shown: newShown(mgr.GetEventRecorder("render-controller"))}
	if err := r.shown.register(o.Metrics); err != nil {
		return fmt.Errorf("register metrics of the render controller: %w", err)
	}
	all := allPools(r.client, o.Log)
	changed := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	b := ctrl.NewControllerManagedBy(mgr).Named("render").
		For(&mcfgv1.MachineConfigPool{}, changed).
		Watches(&mcfgv1.MachineConfig{}, settled(o.Settle, ofConfig(all)), changed).
		Watches(&mcfgv1.MachineOSConfig{}, settled(o.Settle, all), changed).
		Watches(&mcfgv1.MachineOSBuild{}, settled(o.Settle, ofBuild), builder.WithPredicates(deletedOnly())).
		Watches(&corev1.Node{}, settled(o.Settle, ofNode), builder.WithPredicates(configsChanged()))
	for _, kind := range []client.Object{&mcfgv1.ControllerConfig{}, &mcfgv1.KubeletConfig{},
		&mcfgv1.ContainerRuntimeConfig{}, &mcfgv1.OSImageStream{}, &configv1.FeatureGate{},
		&operatorv1alpha1.ImageContentSourcePolicy{}, &configv1.ImageDigestMirrorSet{}, &configv1.ImageTagMirrorSet{},
		&configv1.Image{}, &configv1.ClusterImagePolicy{}, &configv1.APIServer{}} {
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
		b = b.Watches(kind, settled(o.Settle, all))
	}
	if err := b.WithOptions(controller.Options{MaxConcurrentReconciles: workers}).Complete(r); err != nil {
		return fmt.Errorf("start render controller: %w", err)
	}
	return nil
}

// settled enqueues pools a while after a change, so that several changes are one rendering.
func settled(settle time.Duration, pools poolsOf) handler.EventHandler {
	add := func(ctx context.Context, o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, name := range pools(ctx, o) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, settle)
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

// poolsOf names the pools that an object concerns.
type poolsOf func(context.Context, client.Object) []string

// allPools says that an object concerns every pool.
func allPools(c client.Reader, log *logrus.Entry) poolsOf {
	return func(ctx context.Context, _ client.Object) []string {
		var pools mcfgv1.MachineConfigPoolList
		if err := c.List(ctx, &pools); err != nil {
			log.WithError(err).Warn("pools not listed")
			return nil
		}
		var names []string
		for i := range pools.Items {
			names = append(names, pools.Items[i].Name)
		}
		return names
	}
}

// ofConfig says that a rendered config concerns its pool and any other MachineConfig may concern all.
func ofConfig(all poolsOf) poolsOf {
	return func(ctx context.Context, o client.Object) []string {
		if !inputs.IsRendered(o) {
			return all(ctx, o)
		}
		if owner := metav1.GetControllerOf(o); owner != nil {
			return []string{owner.Name}
		}
		return poolOf(o.GetName())
	}
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

// configsChanged lets nodes pass whose configs have changed: one that they had may be old now.
func configsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(nodeConfigs(e.ObjectOld), nodeConfigs(e.ObjectNew))
	}}
}

// deletedOnly lets deletions pass.
func deletedOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
