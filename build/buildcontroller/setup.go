package buildcontroller

import (
	"context"
	"fmt"
	"maps"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// buildIndexes find builds in the cache.
func buildIndexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		indexOwner: indexed(func(b *mcfgv1.MachineOSBuild) string { return b.Spec.MachineOSConfig.Name }),
		indexContent: indexed(func(b *mcfgv1.MachineOSBuild) string {
			return content{installconfig.Repository(string(b.Spec.RenderedImagePushSpec)),
				b.Annotations[manifests.AnnotationBuildAddress]}.index()
		}),
		indexActive: indexed(func(b *mcfgv1.MachineOSBuild) string {
			if terminal(b) {
				return ""
			}
			return "true"
		}),
	}
}

// indexed makes an index over one value, which an object has when it is not empty.
func indexed[T client.Object](value func(T) string) client.IndexerFunc {
	return func(o client.Object) []string {
		if t, ok := o.(T); ok && value(t) != "" {
			return []string{value(t)}
		}
		return nil
	}
}

// CacheOptions keep the cache small: of Jobs and pods those of builds alone, and no managed fields.
func CacheOptions(namespace string) cache.Options {
	ours := labels.SelectorFromSet(labels.Set{manifests.LabelEphemeralBuildObject: ""})
	of := cache.ByObject{Label: ours, Namespaces: map[string]cache.Config{namespace: {}}}
	return cache.Options{
		ByObject:         map[client.Object]cache.ByObject{&batchv1.Job{}: of, &corev1.Pod{}: of},
		DefaultTransform: cache.TransformStripManagedFields(),
	}
}

// Add adds the controller to a manager whose cache has CacheOptions.
func Add(ctx context.Context, mgr ctrl.Manager, o Options) error {
	r, err := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("machine-os-builder"), o)
	if err != nil {
		return err
	}
	if err := indexObjects(ctx, mgr); err != nil {
		return err
	}
	err = watching(mgr, "machine-os-build", r).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, metaChanged(), countsChanged()))).
		Watches(&mcfgv1.ControllerConfig{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("start controller of MachineOSBuilds: %w", err)
	}
	return nil
}

// watching is a controller of MachineOSConfigs that is woken by their builds, whoever makes these.
func watching(mgr ctrl.Manager, name string, r *reconciler) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&mcfgv1.MachineOSConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			metaChanged()))).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(r.ofBuild)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(ofBuildObject)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofBuildObject)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.o.Workers})
}

// indexObjects makes the indexes of the cache.
func indexObjects(ctx context.Context, mgr ctrl.Manager) error {
	for name, index := range buildIndexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &mcfgv1.MachineOSBuild{}, name, index); err != nil {
			return fmt.Errorf("index MachineOSBuilds by %s: %w", name, err)
		}
	}
	byPool := indexed(func(c *mcfgv1.MachineOSConfig) string { return c.Spec.MachineConfigPool.Name })
	if err := mgr.GetFieldIndexer().IndexField(ctx, &mcfgv1.MachineOSConfig{}, indexPool, byPool); err != nil {
		return fmt.Errorf("index MachineOSConfigs by pool: %w", err)
	}
	return nil
}

// metaChanged admits changes of annotations, labels and deletion.
func metaChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || e.ObjectNew.GetDeletionTimestamp() != nil
	}}
}

// countsChanged admits the progress of a rollout, for its metrics.
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

// ofBuild requests the MachineOSConfig of a build, and the queued ones when the build has ended.
func (r *reconciler) ofBuild(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*mcfgv1.MachineOSBuild)
	if !ok {
		return nil
	}
	list := []reconcile.Request{requestFor(b.Spec.MachineOSConfig.Name)}
	if terminal(b) || b.DeletionTimestamp != nil {
		r.memory.queued.Range(func(name, _ any) bool {
			list = append(list, requestFor(fmt.Sprint(name)))
			return true
		})
	}
	return list
}

// ofBuildObject requests the MachineOSConfig that a Job or pod works for.
func ofBuildObject(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetAnnotations()[manifests.LabelMachineOSConfig]; name != "" {
		return []reconcile.Request{requestFor(name)}
	}
	return nil
}

func (r *reconciler) ofPool(ctx context.Context, o client.Object) []reconcile.Request {
	return r.configs(ctx, client.MatchingFields{indexPool: o.GetName()})
}

func (r *reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.configs(ctx)
}

func (r *reconciler) configs(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var configs mcfgv1.MachineOSConfigList
	if err := r.api.client.List(ctx, &configs, options...); err != nil {
		r.o.Log.WithError(err).Error("MachineOSConfigs cannot be listed")
		return nil
	}
	list := make([]reconcile.Request, 0, len(configs.Items))
	for i := range configs.Items {
		list = append(list, requestFor(configs.Items[i].Name))
	}
	return list
}
