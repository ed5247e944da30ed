package fleet

import (
	"context"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

const (
	// sampleEvery is how often nodes are counted.
	sampleEvery = 100 * time.Millisecond
	// sampleTakes is how long a count may take. In a longer one a node that was cordoned at its beginning and one that is
	// off at its end may not have been away at the same time.
	sampleTakes = 200 * time.Millisecond
)

// Watch sees what happens to the nodes: how many of a pool are not there for pods at once, and what the pools' plans
// have foretold.
type Watch struct {
	fleet *Fleet

	mu      sync.Mutex
	samples int
	worst   map[string]int
	excused map[string]bool
	plans   map[string]map[target.Target]disruption.PoolPlan
	// last is each pool's latest target with the most reboots that were foretold for it; foretold are those of targets
	// before.
	last     map[string]foretold
	foretold int
}

type foretold struct {
	target  target.Target
	reboots int
}

// NewWatch makes a watch of all hosts that the fleet has and gets; Run runs it.
func NewWatch(f *Fleet) *Watch {
	return &Watch{fleet: f, worst: map[string]int{}, excused: map[string]bool{},
		plans: map[string]map[target.Target]disruption.PoolPlan{}, last: map[string]foretold{}}
}

// Run counts until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { w.followPlans(ctx) })
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		w.sample(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	both.Wait()
}

// sample counts the nodes that are cordoned or whose machine is off.
func (w *Watch) sample(ctx context.Context) {
	var nodes corev1.NodeList
	began := time.Now()
	if w.fleet.Client.List(ctx, &nodes) != nil {
		return // it is away on purpose
	}
	cordoned := map[string]bool{}
	for _, n := range nodes.Items {
		cordoned[n.Name] = n.Spec.Unschedulable
	}
	w.fleet.mu.Lock()
	hosts := w.fleet.Hosts
	w.fleet.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	away := map[string]int{}
	for _, h := range hosts {
		if on, err := h.Node.Running(); cordoned[h.Name] || err == nil && !on && !w.excused[h.Name] {
			away[h.Pool]++
		}
	}
	if time.Since(began) > sampleTakes {
		return
	}
	for pool, n := range away {
		w.worst[pool] = max(w.worst[pool], n)
	}
	w.samples++
}

// Excuse leaves a machine out of the count while it is off for a reason that is not the cluster's, such as a power cut.
func (w *Watch) Excuse(h *Host, excused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused[h.Name] = excused
}

// Worst gives the most nodes of a pool that were unavailable at once since the last call, and Samples how often they
// were counted.
func (w *Watch) Worst(pool string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.worst[pool]
	delete(w.worst, pool)
	return n
}

// Samples is how often nodes were counted.
func (w *Watch) Samples() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.samples
}

// Foretold is what a pool's plan said of a target before its first node went.
func (w *Watch) Foretold(pool string, t target.Target) disruption.PoolPlan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plans[pool][t]
}

// Reboots is how many reboots all plans have foretold; a target that a pool came back to counts again.
func (w *Watch) Reboots() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.foretold
	for _, l := range w.last {
		sum += l.reboots
	}
	return sum
}

// followPlans keeps of every target's plans the one that is about most nodes: it shrinks while they get there.
func (w *Watch) followPlans(ctx context.Context) {
	c, err := client.NewWithWatch(w.fleet.Config, client.Options{Scheme: w.fleet.Client.Scheme()})
	if err != nil {
		return // the first assertion about a plan says that there is none
	}
	for ctx.Err() == nil {
		if events, err := c.Watch(ctx, &mcfgv1.MachineConfigPoolList{}); err == nil {
			for e := range events.ResultChan() {
				if p, ok := e.Object.(*mcfgv1.MachineConfigPool); ok {
					w.keepPlan(p)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(speakEvery):
		}
	}
}

func (w *Watch) keepPlan(pool *mcfgv1.MachineConfigPool) {
	plan, err := disruption.PoolPlanOf(pool.Annotations)
	if err != nil || plan == nil {
		return
	}
	t := target.Target{Config: plan.Target.Config, Image: plan.Target.Image}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.last[pool.Name]
	if l.target != t {
		w.foretold += l.reboots
		l = foretold{target: t}
	}
	l.reboots = max(l.reboots, plan.Counts[string(disruption.Reboot)])
	w.last[pool.Name] = l
	if w.plans[pool.Name] == nil {
		w.plans[pool.Name] = map[target.Target]disruption.PoolPlan{}
	}
	if have, known := w.plans[pool.Name][t]; !known || plan.Nodes > have.Nodes {
		w.plans[pool.Name][t] = *plan
	}
}
