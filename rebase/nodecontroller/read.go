package nodecontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/rollout"
)

// look is everything that one look at a pool needs.
type look struct {
	*rollout.Look
	lookAgain time.Duration
}

// read gathers a pool and its nodes; nil: there is no such pool. The objects are the cache's own where there is one, so that thousands
// of nodes are not copied for each look: nobody changes them.
func (r *Reconciler) read(ctx context.Context, name string) (*look, error) {
	var pools mcfgv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var records mcfgv1.MachineConfigNodeList
	for _, list := range []client.ObjectList{&pools, &nodes, &configs, &builds, &records} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	c := rollout.Cluster{Pools: pools.Items, Nodes: nodes.Items, Configs: configs.Items, Builds: builds.Items, Records: records.Items, Foreseen: r.o.Foreseen}
	if r.o.Self != "" {
		c.Deferred = map[string]string{r.o.Self: "the controller itself runs on it"}
	}
	l := c.Look(name)
	if l == nil {
		return nil, nil
	}
	return &look{Look: l}, nil
}

// preflight checks the image once per target, before the first node gets it.
func (r *Reconciler) preflight(ctx context.Context, s *look) {
	if r.o.Preflight == nil || !s.Layered || s.Pool.Hold != "" || s.Pool.Paused || r.checked.has(s.Object.Name, s.Pool.Target) {
		return
	}
	if err := r.o.Preflight.Check(ctx, s.Object, s.Pool.Target); err != nil {
		s.Faults = append(s.Faults, fmt.Sprintf("the image is not delivered: %v", err))
		s.Hold("the image did not pass its checks: " + err.Error())
		s.lookAgain = retryPreflight
		return
	}
	r.checked.set(s.Object.Name, s.Pool.Target)
}

// checkedTargets is safe for use by several workers.
type checkedTargets struct {
	mu    sync.Mutex
	pools map[string]rollout.Target
}

func (c *checkedTargets) has(pool string, t rollout.Target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pools[pool] == t
}

func (c *checkedTargets) set(pool string, t rollout.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools == nil {
		c.pools = map[string]rollout.Target{}
	}
	c.pools[pool] = t
}
