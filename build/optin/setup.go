package optin

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Indexes of the cache: MachineOSConfigs by their pool and by the Secrets that they name.
const (
	indexPool   = "optin-pool"
	indexSecret = "optin-secret"
)

// CacheOptions narrow what is watched to what Add needs: single objects of other namespaces, builds' objects by their
// label. Of Secrets and ConfigMaps only metadata is ever watched.
func CacheOptions(namespace string) map[client.Object]cache.ByObject {
	if namespace == "" {
		namespace = cluster.DefaultNamespace
	}
	ephemeral := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {LabelSelector: ephemeralObjects()}}}
	named := func(name string) cache.Config {
		return cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}
	}
	return map[client.Object]cache.ByObject{
		&batchv1.Job{}:      ephemeral,
		&corev1.ConfigMap{}: ephemeral,
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			namespace:                    {},
			cluster.PullSecretNamespace:  named(cluster.PullSecretName),
			cluster.EntitlementNamespace: named(cluster.EntitlementName),
		}},
		// Two of them matter, and a selector of fields names one: the namespace has a handful.
		&appsv1.Deployment{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		&operatorv1.MachineConfiguration{}: {
			Field: fields.OneTermEqualSelector("metadata.name", cluster.MachineConfiguration)},
	}
}

func ephemeralObjects() labels.Selector {
	exists, err := labels.NewRequirement(manifests.LabelEphemeralBuildObject, selection.Exists, nil)
	if err != nil {
		return labels.Nothing() // the key is a constant that is a valid label
	}
	return labels.NewSelector().Add(*exists)
}

// Add puts both controllers into a manager whose cache has CacheOptions.
func Add(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o = o.withDefaults()
	metrics, err := newMetrics(o.Metrics)
	if err != nil {
		return err
	}
	if err := index(ctx, mgr); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder("dayone-optin")
	c := copier{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	m := &members{client: mgr.GetClient(), live: mgr.GetAPIReader(), events: recorder, copier: c, metrics: metrics, o: o}
	if err := m.watch(mgr); err != nil {
		return fmt.Errorf("start controller of opt-in: %w", err)
	}
	b := &builder{client: mgr.GetClient(), live: mgr.GetAPIReader(), events: recorder, copier: c, metrics: metrics, o: o}
	if err := b.watch(mgr); err != nil {
		return fmt.Errorf("start controller of %s: %w", cluster.Builder, err)
	}
	return nil
}

func index(ctx context.Context, mgr ctrl.Manager) error {
	for name, of := range map[string]func(*mcfgv1.MachineOSConfig) []string{
		indexPool: func(c *mcfgv1.MachineOSConfig) []string { return []string{c.Spec.MachineConfigPool.Name} },
		indexSecret: func(c *mcfgv1.MachineOSConfig) []string {
			var names []string
			for _, s := range namedSecrets(c) {
				names = append(names, s.name)
			}
			return names
		},
	} {
		values := func(o client.Object) []string {
			if c, ok := o.(*mcfgv1.MachineOSConfig); ok {
				return of(c)
			}
			return nil
		}
		if err := mgr.GetFieldIndexer().IndexField(ctx, &mcfgv1.MachineOSConfig{}, name, values); err != nil {
			return fmt.Errorf("index MachineOSConfigs by %s: %w", name, err)
		}
	}
	return nil
}

func (m *members) watch(mgr ctrl.Manager) error {
	byPool := func(ctx context.Context, o client.Object) []reconcile.Request {
		return m.configs(ctx, client.MatchingFields{indexPool: o.GetName()})
	}
	rivals := func(ctx context.Context, o client.Object) []reconcile.Request {
		if c, ok := o.(*mcfgv1.MachineOSConfig); ok {
			pool := c.Spec.MachineConfigPool.Name
			return append(m.configs(ctx, client.MatchingFields{indexPool: pool}), requestFor(pool))
		}
		return nil
	}
	return ctrl.NewControllerManagedBy(mgr).Named("opt-in").
		For(&mcfgv1.MachineOSConfig{}).
		// When one of two for the same pool goes, the other one takes its place.
		Watches(&mcfgv1.MachineOSConfig{}, handler.EnqueueRequestsFromMapFunc(rivals),
			ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(byPool),
			ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(m.ofSecret)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(ofJob)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(m)
}

// ofSecret names the MachineOSConfigs to which a Secret matters.
func (m *members) ofSecret(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() == cluster.EntitlementNamespace && o.GetName() == cluster.EntitlementName {
		return m.configs(ctx)
	}
	if o.GetNamespace() != m.o.Namespace {
		return nil
	}
	requests := m.configs(ctx, client.MatchingFields{indexSecret: o.GetName()})
	if pool := poolOf(o); pool != "" && ours(o) {
		requests = append(requests, requestFor(pool)) // also when its MachineOSConfig is gone
	}
	return requests
}

func ofJob(_ context.Context, o client.Object) []reconcile.Request {
	if pool := poolOf(o); pool != "" {
		return []reconcile.Request{requestFor(pool)}
	}
	return nil
}

func (m *members) configs(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var list mcfgv1.MachineOSConfigList
	if err := m.client.List(ctx, &list, options...); err != nil {
		m.o.Log.WithError(err).Error("machineosconfigs cannot be listed")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, requestFor(list.Items[i].Name))
	}
	return requests
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func (b *builder) watch(mgr ctrl.Manager) error {
	// Every event leads to the same reconcile: one key.
	always := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(cluster.Builder)}
	})
	concerns := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ephemeral := o.GetLabels()[manifests.LabelEphemeralBuildObject]
		from, to := b.pullSecret()
		key := client.ObjectKeyFromObject(o)
		return ephemeral || key == from || key == to
	})
	builders := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetName() == cluster.Builder || o.GetName() == cluster.FormerBuilder
	})
	return ctrl.NewControllerManagedBy(mgr).Named(cluster.Builder).
		Watches(&mcfgv1.MachineOSConfig{}, always).
		Watches(&mcfgv1.MachineOSBuild{}, always).
		Watches(&batchv1.Job{}, always).
		WatchesMetadata(&corev1.ConfigMap{}, always).
		WatchesMetadata(&corev1.Secret{}, always, ctrlbuilder.WithPredicates(concerns)).
		Watches(&appsv1.Deployment{}, always, ctrlbuilder.WithPredicates(builders)).
		Watches(&operatorv1.MachineConfiguration{}, always).
		Complete(b)
}
