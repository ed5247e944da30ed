package nodecontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// look is everything that one look at a pool needs.
type look struct {
	pool    *mcfgv1.MachineConfigPool
	objects map[string]*corev1.Node
	records map[string]*mcfgv1.MachineConfigNode
	planned rollout.Pool
	nodes   []rollout.Node
	// faults are what the admin must mend, in words.
	faults []string
	// building tells that the target waits for an image.
	building  bool
	lookAgain time.Duration
}

// read gathers a pool and its nodes; nil: there is no such pool.
func (r *Reconciler) read(ctx context.Context, name string) (*look, error) {
	s := &look{pool: &mcfgv1.MachineConfigPool{}, objects: map[string]*corev1.Node{}, records: map[string]*mcfgv1.MachineConfigNode{}}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, s.pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !s.pool.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var pools mcfgv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var records mcfgv1.MachineConfigNodeList
	for _, list := range []client.ObjectList{&pools, &nodes, &records} {
		if err := r.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range records.Items {
		s.records[records.Items[i].Name] = &records.Items[i]
	}
	all := make([]*mcfgv1.MachineConfigPool, 0, len(pools.Items))
	for i := range pools.Items {
		all = append(all, &pools.Items[i])
	}
	for i := range nodes.Items {
		r.place(s, &nodes.Items[i], all)
	}
	var err error
	if s.planned, err = rollout.PoolOf(s.pool); err != nil {
		s.faults = append(s.faults, err.Error())
	}
	return s, nil
}

// place takes a node into the look when it belongs to the pool.
func (r *Reconciler) place(s *look, n *corev1.Node, pools []*mcfgv1.MachineConfigPool) {
	pool, err := rollout.PoolFor(n, pools)
	if err != nil {
		s.faults = append(s.faults, err.Error())
		return
	}
	if pool == nil || pool.Name != s.pool.Name {
		return
	}
	node := rollout.NodeOf(n)
	if n.Name == r.o.Self {
		node.Deferred = "the controller itself runs on it"
	}
	if record := s.records[n.Name]; record != nil {
		if c := meta.FindStatusCondition(record.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdated)); c != nil {
			node.UpdatedSince = c.LastTransitionTime.Time
		}
	}
	s.objects[n.Name] = n
	s.nodes = append(s.nodes, node)
}

// aim finds what the pool's nodes should have, and why they cannot have it yet.
func (r *Reconciler) aim(ctx context.Context, s *look) error {
	s.planned.Target.Config = s.pool.Spec.Configuration.Name
	mosc, err := r.machineOSConfig(ctx, s.pool.Name)
	if err != nil || mosc == nil {
		return err
	}
	s.planned.Target.Image = string(mosc.Status.CurrentImagePullSpec)
	wait, err := r.imageFor(ctx, mosc, s.planned.Target.Config)
	if err != nil {
		return err
	}
	if wait != "" {
		s.building = true
		s.hold(wait)
		return nil
	}
	r.preflight(ctx, s)
	return nil
}

// hold keeps the pool from starting nodes; the first reason stands.
func (s *look) hold(why string) {
	if s.planned.Hold == "" {
		s.planned.Hold = why
	}
}

// machineOSConfig gives the pool's, nil when it is not layered. One that is being deleted has opted its pool out.
func (r *Reconciler) machineOSConfig(ctx context.Context, pool string) (*mcfgv1.MachineOSConfig, error) {
	var list mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list MachineOSConfigs: %w", err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; m.Spec.MachineConfigPool.Name == pool && m.DeletionTimestamp.IsZero() {
			return m, nil
		}
	}
	return nil, nil
}

// imageFor says what the pool waits for before its image may be delivered together with a config; empty: nothing. An image may be
// delivered when the build that the MachineOSConfig's status names has its digest and was made for, or moved to, just this config.
func (r *Reconciler) imageFor(ctx context.Context, mosc *mcfgv1.MachineOSConfig, config string) (string, error) {
	if mosc.Status.CurrentImagePullSpec == "" || mosc.Status.MachineOSBuild == nil {
		return "the image of the pool has not been built yet: see the conditions of MachineOSConfig " + mosc.Name, nil
	}
	var build mcfgv1.MachineOSBuild
	err := r.client.Get(ctx, client.ObjectKey{Name: mosc.Status.MachineOSBuild.Name}, &build)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get MachineOSBuild %s: %w", mosc.Status.MachineOSBuild.Name, err)
	}
	if err != nil {
		return fmt.Sprintf("MachineOSBuild %s, which made the pool's image, is gone", mosc.Status.MachineOSBuild.Name), nil
	}
	succeeded := meta.IsStatusConditionTrue(build.Status.Conditions, string(mcfgv1.MachineOSBuildSucceeded))
	if !succeeded || build.Status.DigestedImagePushSpec != mosc.Status.CurrentImagePullSpec {
		return fmt.Sprintf("MachineOSBuild %s has not brought the pool's image", build.Name), nil
	}
	if build.Labels[manifests.LabelRenderedMachineConfig] != config {
		return fmt.Sprintf("the image for %s is not built yet: see the conditions of MachineOSConfig %s", config, mosc.Name), nil
	}
	return "", nil
}

// preflight checks the image once per target, before the first node gets it.
func (r *Reconciler) preflight(ctx context.Context, s *look) {
	if r.o.Preflight == nil || s.planned.Hold != "" || s.planned.Paused || r.checked.has(s.pool.Name, s.planned.Target) {
		return
	}
	if err := r.o.Preflight.Check(ctx, s.pool, s.planned.Target); err != nil {
		s.faults = append(s.faults, fmt.Sprintf("the image is not delivered: %v", err))
		s.hold("the image did not pass its checks: " + err.Error())
		s.lookAgain = retryPreflight
		return
	}
	r.checked.set(s.pool.Name, s.planned.Target)
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
