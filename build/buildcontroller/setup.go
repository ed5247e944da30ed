package buildcontroller

import (
	"context"
	"fmt"
	"maps"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// Indexes of the cache: builds by MachineOSConfig, by content and repository, and those that run; MachineOSConfigs by
// pool.
const (
	indexOwner   = "owner"
	indexContent = "content"
	indexActive  = "active"
	indexPool    = "pool"
)

// Indexes are what the reconciler looks up in the cache.
func Indexes() map[string]client.IndexerFunc {
	build := func(f func(*mcfgv1.MachineOSBuild) string) client.IndexerFunc {
		return func(o client.Object) []string {
			b, ok := o.(*mcfgv1.MachineOSBuild)
			if !ok {
				return nil
			}
			if v := f(b); v != "" {
				return []string{v}
			}
			return nil
		}
	}
	return map[string]client.IndexerFunc{
		indexOwner: build(func(b *mcfgv1.MachineOSBuild) string { return b.Spec.MachineOSConfig.Name }),
		indexContent: build(func(b *mcfgv1.MachineOSBuild) string {
			return content(b.Annotations[manifests.AnnotationBuildAddress],
				installconfig.Repository(string(b.Spec.RenderedImagePushSpec)))
		}),
		indexActive: build(func(b *mcfgv1.MachineOSBuild) string {
			if machineosbuild.StateOf(b).Terminal() {
				return ""
			}
			return "true"
		}),
	}
}

// CacheOptions keep the cache small: Jobs and pods of builds alone, nothing that only people read.
func CacheOptions(namespace string) cache.Options {
	ours := labels.SelectorFromSet(labels.Set{manifests.LabelEphemeralBuildObject: ""})
	of := cache.ByObject{Label: ours, Namespaces: map[string]cache.Config{namespace: {}}}
	return cache.Options{
		ByObject:         map[client.Object]cache.ByObject{&batchv1.Job{}: of, &corev1.Pod{}: of},
		DefaultTransform: cache.TransformStripManagedFields(),
	}
}

// Add puts the controller into a manager whose cache has CacheOptions.
func Add(ctx context.Context, mgr ctrl.Manager, o Options) (*Reconciler, error) {
	r, err := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("machine-os-builder"), o)
	if err != nil {
		return nil, err
	}
	for name, f := range Indexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &mcfgv1.MachineOSBuild{}, name, f); err != nil {
			return nil, fmt.Errorf("index MachineOSBuilds by %s: %w", name, err)
		}
	}
	byPool := func(o client.Object) []string {
		if c, ok := o.(*mcfgv1.MachineOSConfig); ok {
			return []string{c.Spec.MachineConfigPool.Name}
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &mcfgv1.MachineOSConfig{}, indexPool, byPool); err != nil {
		return nil, fmt.Errorf("index MachineOSConfigs by pool: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("machine-os-build").
		For(&mcfgv1.MachineOSConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			metaChanged()))).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(r.ofBuild)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(ofBuildObject)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofBuildObject)).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, metaChanged(), countsChanged()))).
		Watches(&mcfgv1.ControllerConfig{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.o.Workers}).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("start controller of MachineOSBuilds: %w", err)
	}
	return r, nil
}

// metaChanged lets changes of annotations, labels and deletion pass.
func metaChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || e.ObjectNew.GetDeletionTimestamp() != nil
	}}
}

// countsChanged lets a rollout pass, for its metrics.
func countsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, okOld := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		now, okNow := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return okOld && okNow && (old.Status.MachineCount != now.Status.MachineCount ||
			old.Status.UpdatedMachineCount != now.Status.UpdatedMachineCount)
	}}
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// ofBuild wakes the MachineOSConfig of a build, and those that wait for others when it has ended.
func (r *Reconciler) ofBuild(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*mcfgv1.MachineOSBuild)
	if !ok {
		return nil
	}
	list := []reconcile.Request{requestFor(b.Spec.MachineOSConfig.Name)}
	if machineosbuild.StateOf(b).Terminal() || b.DeletionTimestamp != nil {
		for _, name := range r.waiters.list() {
			list = append(list, requestFor(name))
		}
	}
	return list
}

// ofBuildObject wakes the MachineOSConfig that a Job or pod works for.
func ofBuildObject(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetAnnotations()[manifests.LabelMachineOSConfig]; name != "" {
		return []reconcile.Request{requestFor(name)}
	}
	return nil
}

func (r *Reconciler) ofPool(ctx context.Context, o client.Object) []reconcile.Request {
	return r.configs(ctx, client.MatchingFields{indexPool: o.GetName()})
}

func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.configs(ctx)
}

func (r *Reconciler) configs(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var configs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &configs, options...); err != nil {
		r.o.Log.WithError(err).Error("MachineOSConfigs cannot be listed")
		return nil
	}
	list := make([]reconcile.Request, 0, len(configs.Items))
	for i := range configs.Items {
		list = append(list, requestFor(configs.Items[i].Name))
	}
	return list
}

func mcfgResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: mcfgv1.GroupName, Resource: name}
}

// waiters are MachineOSConfigs to which the end of others' builds matters.
type waiters struct {
	mu    sync.Mutex
	names map[string]bool
}

func newWaiters() *waiters { return &waiters{names: map[string]bool{}} }

func (w *waiters) set(name string, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waits {
		w.names[name] = true
	} else {
		delete(w.names, name)
	}
}

func (w *waiters) forget(name string) { w.set(name, false) }

func (w *waiters) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make([]string, 0, len(w.names))
	for name := range w.names {
		names = append(names, name)
	}
	return names
}
