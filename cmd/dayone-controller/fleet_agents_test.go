package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/rebase/nodestate"
)

const (
	// fleetPatience bounds every wait for a fleet.
	fleetPatience = 5 * time.Minute
	// fleetWriters is how many agents talk to the API server at once.
	fleetWriters = 8
	// longest is what the slowest node needs from its drain to its uncordon, in simulated time.
	longest = 10 * time.Minute
)

// agents do at the API what each node's agent does; only draining and booting take simulated time.
type agents struct {
	t       testing.TB
	c       client.Client
	limit   int
	classes int
	todo    chan func()

	mu   sync.Mutex
	news chan struct{}
	all  map[string]*agentOfNode
	// arrived is how many have the target; away how many are unavailable, mostAway the most of that.
	target                  string
	arrived, away, mostAway int
	clock                   time.Duration
	started                 int
}

// agentOfNode is one node's agent.
type agentOfNode struct {
	node   *corev1.Node
	record nodestate.Record
	// did is the agent's last step, so that no other change of its node makes it do it again.
	did string
	// working: it is drained and boots until ends.
	working bool
	ends    time.Duration
}

// watchAgents follows the nodes of the cluster.
func watchAgents(t testing.TB, env *kubetest.Env, limit, classes int) *agents {
	t.Helper()
	f := &agents{t: t, c: env.Client, limit: limit, classes: classes, all: map[string]*agentOfNode{},
		news: make(chan struct{}, 1), todo: make(chan func(), 1<<16)}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	for range fleetWriters {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case do := <-f.todo:
					do()
				}
			}
		})
	}
	nodes, err := cache.New(env.Config, cache.Options{Scheme: env.Scheme})
	require.NoError(t, err)
	informer, err := nodes.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	require.NoError(t, err)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.see(ctx, o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { f.see(ctx, o.(*corev1.Node)) },
	})
	require.NoError(t, err)
	pools, err := nodes.GetInformer(ctx, &mcfgv1.MachineConfigPool{}, cache.BlockUntilSynced(false))
	require.NoError(t, err)
	_, err = pools.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(old, o any) {
		f.honest(old.(*mcfgv1.MachineConfigPool), o.(*mcfgv1.MachineConfigPool))
	}})
	require.NoError(t, err)
	group.Go(func() { _ = nodes.Start(ctx) })
	return f
}

// honest fails when a pool's status takes back progress towards the same target, or says more than there is.
func (f *agents) honest(old, p *mcfgv1.MachineConfigPool) {
	before, now := old.Status, p.Status
	if old.Status.ObservedGeneration == p.Status.ObservedGeneration && before.MachineCount == now.MachineCount &&
		now.UpdatedMachineCount < before.UpdatedMachineCount {
		f.t.Errorf("updated nodes went from %d back to %d", before.UpdatedMachineCount, now.UpdatedMachineCount)
	}
	if now.ObservedGeneration < before.ObservedGeneration {
		f.t.Errorf("observed generation went from %d back to %d", before.ObservedGeneration, now.ObservedGeneration)
	}
	for _, c := range now.Conditions {
		if c.Type == mcfgv1.MachineConfigPoolUpdated && c.Status == corev1.ConditionTrue &&
			now.UpdatedMachineCount != now.MachineCount {
			f.t.Errorf("the pool is said to be updated with %d of %d nodes", now.UpdatedMachineCount, now.MachineCount)
		}
	}
}

// see takes in a node's new state and lets its agent act.
func (f *agents) see(ctx context.Context, n *corev1.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.all[n.Name]
	if a == nil {
		a = &agentOfNode{}
		f.all[n.Name] = a
	}
	before := f.state(a)
	a.node = n
	var err error
	if a.record, err = nodestate.Parse(n.Annotations); err != nil {
		f.t.Errorf("node %s: %v", n.Name, err)
		return
	}
	after := f.state(a)
	f.arrived += after.arrived - before.arrived
	f.away += after.away - before.away
	f.mostAway = max(f.mostAway, f.away)
	f.act(ctx, a)
	select {
	case f.news <- struct{}{}:
	default:
	}
}

type counted struct{ arrived, away int }

func (f *agents) state(a *agentOfNode) (c counted) {
	if a.node == nil {
		return c
	}
	if a.record.Converged() && a.record.CurrentConfig == f.target {
		c.arrived = 1
	}
	if !a.record.Converged() || a.node.Spec.Unschedulable {
		c.away = 1
	}
	return c
}

// act is the agent's next step, if there is one.
func (f *agents) act(ctx context.Context, a *agentOfNode) {
	r := a.record
	switch {
	case r.State == nodestate.StateDone && r.DesiredConfig != r.CurrentConfig:
		r.State, r.DesiredDrain = nodestate.StateWorking, nodestate.DrainRequest(nodestate.Drain, r.DesiredConfig)
		f.write(ctx, a, "begins "+r.DesiredConfig, r)
	case r.State != nodestate.StateWorking || !r.Drained():
	case strings.HasPrefix(r.DesiredDrain, nodestate.Drain+"-") && a.did != "works "+r.DesiredConfig:
		// No two nodes are equally fast.
		a.did, a.working, a.ends = "works "+r.DesiredConfig, true,
			f.clock+longest-time.Duration(f.started%f.classes)*longest/25
		f.started++
	case strings.HasPrefix(r.DesiredDrain, nodestate.Uncordon+"-"):
		r.State = nodestate.StateDone
		f.write(ctx, a, "ends "+r.DesiredConfig, r)
	}
}

// write changes what the agent owns of its node, once for each step.
func (f *agents) write(ctx context.Context, a *agentOfNode, step string, r nodestate.Record) {
	if a.did == step {
		return
	}
	a.did = step
	changes, err := r.Patch(a.node.Annotations)
	if err != nil {
		f.t.Errorf("node %s: %v", a.node.Name, err)
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		f.t.Errorf("node %s: %v", a.node.Name, err)
		return
	}
	name := a.node.Name
	f.todo <- func() {
		err := f.c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			client.RawPatch(types.MergePatchType, patch))
		if err != nil && ctx.Err() == nil {
			f.t.Errorf("agent of %s: %v", name, err)
		}
	}
}

// roll lets all nodes go to a config and gives the simulated time that it took. The clock stands while the controllers
// have something to do: it moves when as many nodes as may be away are at work, or all that are left.
func (f *agents) roll(config string) time.Duration {
	f.t.Helper()
	f.mu.Lock()
	f.target = config
	f.arrived = 0
	for _, a := range f.all {
		f.arrived += f.state(a).arrived
	}
	f.mu.Unlock()
	ctx := f.t.Context()
	for {
		done := false
		f.await(fmt.Sprintf("%d nodes to be at work", f.limit), func() bool {
			working := 0
			for _, a := range f.all {
				if a.working {
					working++
				}
			}
			left := len(f.all) - f.arrived
			done = left == 0
			return done || working == min(f.limit, left)
		})
		if done {
			return f.clock
		}
		f.mu.Lock()
		first := time.Duration(0)
		for _, a := range f.all {
			if a.working && (first == 0 || a.ends < first) {
				first = a.ends
			}
		}
		f.clock = first
		for _, a := range f.all {
			if a.working && a.ends == first {
				a.working = false
				r := a.record
				r.CurrentConfig, r.DesiredDrain = r.DesiredConfig, nodestate.DrainRequest(nodestate.Uncordon, r.DesiredConfig)
				f.write(ctx, a, "boots "+r.DesiredConfig, r)
			}
		}
		f.mu.Unlock()
	}
}

// await looks at every news until done.
func (f *agents) await(what string, done func() bool) {
	f.t.Helper()
	limit := time.NewTimer(fleetPatience)
	defer limit.Stop()
	for {
		f.mu.Lock()
		ok, arrived, away := done(), f.arrived, f.away
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-f.news:
		case <-limit.C:
			require.FailNow(f.t, "waited too long for "+what, "%d of %d nodes have arrived, %d are away", arrived, len(f.all),
				away)
		}
	}
}
