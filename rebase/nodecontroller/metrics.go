package nodecontroller

import (
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/rebase/rollout"
)

// metrics are what MCO's controller shows of pools, under its names and labels, and dayone's own. They are made when
// somebody reads them: a rollout of thousands of nodes costs no more than one of three. Source: MCO,
// pkg/controller/common/metrics.go. It is safe for use by several workers.
type metrics struct {
	mu    sync.Mutex
	pools map[string]measured
	// decisions measures the planner.
	decisions prometheus.Histogram
}

// measured is one pool as it was last decided about.
type measured struct {
	nodes map[string]bool // by name; true: a custom pool selects the node of the control plane, too
	// state and reason are the newest condition that is true, since at.
	state, reason                            string
	at                                       time.Time
	machines, updated, degraded, unavailable int32
	waiting                                  map[string]int
	stopped                                  bool
}

// description holds one of each metric.
type description struct {
	state, alert, machines, updated, degraded, unavailable, waiting, stopped *prometheus.Desc
}

func describe() description {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return description{
		state: d("mco_state", "Unix time in seconds at which the pool of the node came into its newest state.",
			"node", "pool", "state", "reason"),
		alert: d("mcc_pool_alert", "1 for a node of the control plane that a custom pool selects in vain, else 0.",
			"node"),
		machines:    d("mco_machine_count", "Nodes of the pool.", "pool"),
		updated:     d("mco_updated_machine_count", "Nodes of the pool that have its config and image.", "pool"),
		degraded:    d("mco_degraded_machine_count", "Nodes of the pool whose agent gave up.", "pool"),
		unavailable: d("mco_unavailable_machine_count", "Nodes of the pool that take no pods or may soon take none.", "pool"),
		waiting: d("dayone_rollout_waiting_nodes", "Nodes of the pool that wait, by the reason of their verdict.", "pool",
			"reason"),
		stopped: d("dayone_rollout_stopped",
			"1 while the pool may start none of its outstanding nodes, neither paused nor outside its windows.", "pool"),
	}
}

func newMetrics() *metrics {
	return &metrics{pools: map[string]measured{}, decisions: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "dayone_rollout_decision_seconds",
		Help:    "Time from the objects in memory to who of a pool's nodes goes next.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)})}
}

// note remembers what was decided about a pool and what its status says now.
func (m *metrics) note(d *decision, at time.Time, now mcfgv1.MachineConfigPoolStatus, took time.Duration) {
	if m == nil {
		return
	}
	m.decisions.Observe(took.Seconds())
	p := measured{nodes: make(map[string]bool, len(d.Nodes)), machines: now.MachineCount, updated: now.UpdatedMachineCount,
		degraded: now.DegradedMachineCount, unavailable: now.UnavailableMachineCount, waiting: map[string]int{},
		stopped: halted(d, at)}
	for i := range d.Nodes {
		p.nodes[d.Nodes[i].Name] = d.Contested[d.Nodes[i].Name]
	}
	for _, c := range now.Conditions {
		if c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(p.at) {
			p.state, p.reason, p.at = string(c.Type), c.Reason, c.LastTransitionTime.Time
		}
	}
	for _, v := range d.plan.Verdicts {
		if v.Phase == rollout.PhaseWaiting || v.Phase == rollout.PhaseBlocked {
			p.waiting[v.Reason]++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools[d.Object.Name] = p
}

// halted tells that a pool starts none of its outstanding nodes although nobody has asked for that.
func halted(d *decision, now time.Time) bool {
	open, _ := d.Pool.Windows.Open(now)
	return d.plan.Stopped != "" && !d.Done(d.plan) && !d.Pool.Paused && open
}

// forget drops a pool that is gone.
func (m *metrics) forget(pool string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pools, pool)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	d := describe()
	for _, one := range []*prometheus.Desc{d.state, d.alert, d.machines, d.updated, d.degraded, d.unavailable, d.waiting,
		d.stopped} {
		to <- one
	}
	m.decisions.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	d := describe()
	gauge := func(what *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// MCO has this one from its start on; dashboards count on it.
	gauge(d.alert, 0, "initialize")
	for name, p := range m.pools {
		gauge(d.machines, float64(p.machines), name)
		gauge(d.updated, float64(p.updated), name)
		gauge(d.degraded, float64(p.degraded), name)
		gauge(d.unavailable, float64(p.unavailable), name)
		gauge(d.stopped, one(p.stopped), name)
		for reason, count := range p.waiting {
			gauge(d.waiting, float64(count), name, reason)
		}
		for node, contested := range p.nodes {
			gauge(d.alert, one(contested), node)
			if p.state != "" {
				gauge(d.state, float64(p.at.Unix()), node, name, p.state, p.reason)
			}
		}
	}
	m.decisions.Collect(to)
}

// one is 1 for what is true.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
