package nodecontroller

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// gather is for how long changes of a pool are gathered before it is reconciled: when a whole fleet moves, one
// reconciliation and one status stand for many nodes. It is far below what a node needs to drain and boot.
const gather = 500 * time.Millisecond

// queue is where requests go.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// CacheOptions leave out of cached Nodes what no controller of dayone reads: the list of a node's images alone is most
// of the object.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			n.ManagedFields = nil
			n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil
		}
		return o, nil
	}}}
}

// watcher finds the pools that a change concerns.
type watcher struct {
	client client.Reader
	log    *logrus.Entry
	// events gets what happens to nodes of the control plane; nil: nobody does.
	events events.EventRecorder
}

func watch(mgr ctrl.Manager, r *Reconciler, w watcher) error {
	b := ctrl.NewControllerManagedBy(mgr).Named(name).
		Watches(&mcfgv1.MachineConfigPool{}, wake(w.ofPool)).
		Watches(&corev1.Node{}, wake(w.ofNode)).
		Watches(&mcfgv1.MachineOSConfig{}, wake(ofConfig)).
		Watches(&mcfgv1.MachineOSBuild{}, wake(w.ofBuild)).
		Watches(&mcfgv1.MachineConfigNode{}, wake(ofRecord))
	// A cluster may be without this kind.
	gvk := mcfgv1.GroupVersion.WithKind("PinnedImageSet")
	if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
		b = b.Watches(&mcfgv1.PinnedImageSet{}, wake(w.ofPinned))
	} else if !meta.IsNoMatchError(err) {
		return fmt.Errorf("look for kind %s: %w", gvk.Kind, err)
	}
	return b.WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// wake asks for the pools that a change concerns. before or after is nil when the object was made or has gone.
func wake(concerned func(ctx context.Context, before,
	after client.Object) []string) handler.EventHandler {
	add := func(ctx context.Context, before, after client.Object, q queue) {
		for _, name := range concerned(ctx, before, after) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, nil, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, nil, q) },
	}
}

// pools are all of the cluster's. They are the cache's own.
func (w watcher) pools(ctx context.Context) []*mcfgv1.MachineConfigPool {
	var list mcfgv1.MachineConfigPoolList
	if err := w.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		w.log.WithError(err).Warn("cannot list pools")
		return nil
	}
	out := make([]*mcfgv1.MachineConfigPool, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func names(pools []*mcfgv1.MachineConfigPool) []string {
	out := make([]string, 0, len(pools))
	for _, p := range pools {
		out = append(out, p.Name)
	}
	return out
}

// ofPool is the pool itself, and all when nodes may have come from, or go to, other pools, or another pool waits for
// this one: the arbiter goes after the masters.
func (w watcher) ofPool(ctx context.Context, before, after client.Object) []string {
	old, _ := before.(*mcfgv1.MachineConfigPool)
	pool, _ := after.(*mcfgv1.MachineConfigPool)
	if old == nil || pool == nil || !equality.Semantic.DeepEqual(old.Spec.NodeSelector, pool.Spec.NodeSelector) ||
		!equality.Semantic.DeepEqual(old.Spec.PinnedImageSets, pool.Spec.PinnedImageSets) ||
		pool.Name == masterPool && old.Generation != pool.Generation {
		return names(w.pools(ctx))
	}
	return []string{pool.Name}
}

// ofPinned are all pools: the workers' images are also those of custom pools.
func (w watcher) ofPinned(ctx context.Context, before, after client.Object) []string {
	if before != nil && after != nil && before.GetGeneration() == after.GetGeneration() {
		return nil
	}
	return names(w.pools(ctx))
}

// ofNode are the pools that a node was in and is in; none when nothing has changed that decides about a rollout, as
// with heartbeats.
func (w watcher) ofNode(ctx context.Context, before, after client.Object) []string {
	old, _ := before.(*corev1.Node)
	node, _ := after.(*corev1.Node)
	if old != nil && node != nil && alike(old, node) {
		return nil
	}
	pools := w.pools(ctx)
	placement := rollout.NewPlacement(pools)
	var out []string
	for _, n := range []*corev1.Node{old, node} {
		if n == nil {
			continue
		}
		pool, err := placement.Pool(n)
		if err != nil {
			return names(pools) // each says what is wrong with the node
		}
		if n == node {
			tellChanges(w.events, pool, old, node)
		}
		if rollout.ControlPlane(n) {
			out = names(pools) // another pool may wait for its place
			continue
		}
		if pool != nil && !slices.Contains(out, pool.Name) {
			out = append(out, pool.Name)
		}
	}
	return out
}

// alike tells that two states of a node mean the same for its pool.
func alike(a, b *corev1.Node) bool {
	for _, key := range []string{manifests.AnnotationPlan, manifests.AnnotationPinnedImageSets,
		manifests.AnnotationPinnedImageSetsDone, manifests.AnnotationPinnedImageSetsError} {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	if !maps.Equal(a.Labels, b.Labels) ||
		a.Status.NodeInfo.Architecture != b.Status.NodeInfo.Architecture {
		return false
	}
	x, y := rollout.NodeOf(a), rollout.NodeOf(b)
	x.Record.Progress, y.Record.Progress = "", ""
	x.Created, y.Created = time.Time{}, time.Time{} // never changes; equal times may have unequal parts
	return reflect.DeepEqual(x, y)
}

func ofConfig(_ context.Context, before, after client.Object) []string {
	for _, o := range []client.Object{after, before} {
		if mosc, ok := o.(*mcfgv1.MachineOSConfig); ok {
			return []string{mosc.Spec.MachineConfigPool.Name}
		}
	}
	return nil
}

// ofBuild are all pools: one build may have made the image of several.
func (w watcher) ofBuild(ctx context.Context, before, after client.Object) []string {
	old, _ := before.(*mcfgv1.MachineOSBuild)
	build, _ := after.(*mcfgv1.MachineOSBuild)
	if old != nil && build != nil && maps.Equal(old.Labels, build.Labels) && equality.Semantic.DeepEqual(old.Status,
		build.Status) {
		return nil
	}
	return names(w.pools(ctx))
}

// ofRecord is the pool of a node's record that somebody has deleted or changed, or whose agent has pinned images or
// reports for the first time.
func ofRecord(_ context.Context, before, after client.Object) []string {
	old, _ := before.(*mcfgv1.MachineConfigNode)
	record, _ := after.(*mcfgv1.MachineConfigNode)
	if old == nil || record != nil && old.Spec == record.Spec &&
		(len(old.Status.Conditions) == 0) == (len(record.Status.Conditions) == 0) &&
		equality.Semantic.DeepEqual(old.Status.PinnedImageSets, record.Status.PinnedImageSets) {
		return nil
	}
	return []string{old.Spec.Pool.Name}
}
