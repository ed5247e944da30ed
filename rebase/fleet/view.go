// Package fleet reads what decides about rollouts from a cluster, often and of many nodes: thousands of objects are
// neither copied nor read again as long as they do not change.
//
//	caches of Nodes and MachineConfigNodes, lists of the few other kinds -> View -> rollout.Cluster
package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/rollout"
)

// View reads a cluster. Make it with New or Cached. It is safe for use by several goroutines.
type View struct {
	client  client.Reader
	nodes   *kept[*corev1.Node]
	records *kept[*mcfgv1.MachineConfigNode]
	memory  rollout.Memory
}

// New makes a view that lists everything with c, whose reads may come from a cache.
func New(c client.Reader) *View { return &View{client: c} }

// Cached makes a view that takes Nodes and their records right from a cache. It is to be made before the cache starts,
// so that who waits for the cache waits for them, too.
func Cached(c cache.Cache) (*View, error) {
	v := &View{client: c}
	var err error
	if v.nodes, err = keptIn[*corev1.Node](c, &corev1.Node{}); err == nil {
		v.records, err = keptIn[*mcfgv1.MachineConfigNode](c, &mcfgv1.MachineConfigNode{})
	}
	return v, err
}

// Cluster reads all that decides about rollouts. The objects may be the cache's own: nobody changes them.
func (v *View) Cluster(ctx context.Context) (*rollout.Cluster, error) {
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	lists := []client.ObjectList{&pools, &configs, &builds}
	c := &rollout.Cluster{Memory: &v.memory}
	var nodes corev1.NodeList
	var records mcfgv1.MachineConfigNodeList
	if v.nodes == nil {
		lists = append(lists, &nodes, &records)
	}
	for _, list := range lists {
		if err := v.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	c.Pools, c.Configs, c.Builds = pools.Items, configs.Items, builds.Items
	if v.nodes == nil {
		c.Nodes, c.Records = rollout.Pointers(nodes.Items), rollout.Pointers(records.Items)
		return c, nil
	}
	c.Nodes, c.Records = v.nodes.all(), v.records.all()
	return c, nil
}

// kept are the objects of one kind in a cache, by name.
type kept[T any] struct {
	store toolscache.Store
	mu    sync.Mutex
	// names are those of the last time, in order: they seldom change, and sorting thousands of them costs more than all
	// else here.
	names []string
}

func keptIn[T any](c cache.Cache, kind client.Object) (*kept[T], error) {
	informer, err := c.GetInformer(context.Background(), kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	shared, ok := informer.(toolscache.SharedInformer)
	if !ok {
		return nil, fmt.Errorf("watch %T: the cache's informer is a %T, which has no store to read from", kind, informer)
	}
	return &kept[T]{store: shared.GetStore()}, nil
}

// all gives the objects in the order of their names.
func (k *kept[T]) all() []T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if out, complete := k.named(); complete {
		return out
	}
	k.names = k.store.ListKeys()
	slices.Sort(k.names)
	out, _ := k.named()
	return out
}

// named gives the objects of the names that are known; complete: there are no others, and none has gone.
func (k *kept[T]) named() (out []T, complete bool) {
	out = make([]T, 0, len(k.names))
	for _, name := range k.names {
		if o, found, err := k.store.GetByKey(name); found && err == nil {
			out = append(out, o.(T)) //nolint:forcetypeassert // the cache holds one kind
		}
	}
	return out, len(out) == len(k.names) && len(out) == len(k.store.ListKeys())
}
