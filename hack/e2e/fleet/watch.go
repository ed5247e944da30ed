package fleet

import (
	"context"
	"maps"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
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

	mu sync.Mutex
	// cordoned are the nodes that take no pods, as a watch of them tells; nil while there is none.
	cordoned map[string]bool
	samples  int
	worst    map[string]int
	excused  map[string]bool
	plans    map[string]map[target.Target]disruption.PoolPlan
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
	both.Go(func() { w.follow(ctx) })
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

// sample counts the nodes that are cordoned or whose machine is off. What a watch tells may be older than what is seen
// of the machines: more nodes than ever are counted again with what the API says now.
func (w *Watch) sample(ctx context.Context) {
	w.mu.Lock()
	cordoned := maps.Clone(w.cordoned)
	w.mu.Unlock()
	if cordoned == nil {
		return
	}
	if !w.worse(w.away(cordoned)) {
		w.counted(nil)
		return
	}
	var nodes corev1.NodeList
	began := time.Now()
	if w.fleet.Client.List(ctx, &nodes) != nil {
		return // it is away on purpose
	}
	for _, n := range nodes.Items {
		cordoned[n.Name] = n.Spec.Unschedulable
	}
	if away := w.away(cordoned); time.Since(began) <= sampleTakes {
		w.counted(away)
	}
}

// away counts the nodes of each pool that are cordoned or whose machine is off.
func (w *Watch) away(cordoned map[string]bool) map[string]int {
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
	return away
}

func (w *Watch) worse(away map[string]int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pool, n := range away {
		if n > w.worst[pool] {
			return true
		}
	}
	return false
}

func (w *Watch) counted(away map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// follow keeps what watches of pools and nodes tell.
func (w *Watch) follow(ctx context.Context) {
	c, err := client.NewWithWatch(w.fleet.Config, client.Options{Scheme: w.fleet.Client.Scheme()})
	if err != nil {
		return // the first assertion about a plan says that there is none
	}
	var both sync.WaitGroup
	both.Go(func() {
		watched(ctx, c, &mcfgv1.MachineConfigPoolList{}, func() {}, func(e watch.Event) {
			if p, ok := e.Object.(*mcfgv1.MachineConfigPool); ok {
				w.keepPlan(p)
			}
		})
	})
	both.Go(func() { watched(ctx, c, &corev1.NodeList{}, w.forgetNodes, w.keepNode) })
	both.Wait()
}

// watched tells each event of a list's kind until ctx ends, and before a watch that it begins: all that there is comes
// again.
func watched(ctx context.Context, c client.WithWatch, list client.ObjectList, begins func(), event func(watch.Event)) {
	for ctx.Err() == nil {
		if events, err := c.Watch(ctx, list); err == nil {
			begins()
			for e := range events.ResultChan() {
				event(e)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(speakEvery):
		}
	}
}

func (w *Watch) forgetNodes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cordoned = map[string]bool{}
}

func (w *Watch) keepNode(e watch.Event) {
	n, ok := e.Object.(*corev1.Node)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cordoned[n.Name] = n.Spec.Unschedulable && e.Type != watch.Deleted
}

// keepPlan keeps of every target's plans the one that is about most nodes: it shrinks while they get there.
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
