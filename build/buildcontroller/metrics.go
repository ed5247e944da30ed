package buildcontroller

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// metrics have the names that MCO's builder gives (ocl_*, mco_mosc_count), so that its dashboards keep working, and
// dayone's own.
type metrics struct {
	state, jobState, pushState               *prometheus.GaugeVec
	start, end, active, degraded, retriesNow *prometheus.GaugeVec
	layered, rolled, nodes                   *prometheus.GaugeVec
	duration, queue, push                    *prometheus.HistogramVec
	builds, changes, retries, pushes, acts   *prometheus.CounterVec
	configs                                  prometheus.Gauge

	mu sync.Mutex
	// pools are those of the MachineOSConfigs that exist, by name.
	pools map[string]string
}

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	pool, both := []string{"pool"}, []string{"pool", "state"}
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, labels []string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		state:      gauge("ocl_build_state", "1 for the state in which the pool's latest build is.", both),
		jobState:   gauge("ocl_build_job_state", "1 for the state in which the Job of the pool's latest build is.", both),
		pushState:  gauge("ocl_image_push_state", "1 for the state of the latest push of an image.", both),
		start:      gauge("ocl_build_start_timestamp_seconds", "When the pool's latest build began.", pool),
		end:        gauge("ocl_build_end_timestamp_seconds", "When the pool's latest build ended.", both),
		active:     gauge("ocl_active_builds", "Builds of the pool that run.", pool),
		layered:    gauge("ocl_layered_nodes_count", "Nodes of the pool that run a layered image.", pool),
		rolled:     gauge("ocl_rollout_updated_nodes", "Nodes of the pool that have what the pool asks for.", pool),
		nodes:      gauge("ocl_rollout_total_nodes", "Nodes of the pool.", pool),
		degraded:   gauge("dayone_build_degraded", "1 while the pool's image is not what it should be.", pool),
		retriesNow: gauge("dayone_build_retries_in_a_row", "Retries since the last success.", pool),
		duration: seconds("ocl_build_duration_seconds", "How long builds take.", both, 5, 15, 30, 60, 180, 300, 600, 900,
			1200, 1800, 2400, 3000, 3600),
		queue: seconds("ocl_build_queue_duration_seconds", "From the making of a build to a pod at work.", pool, 1, 5,
			15, 30, 60, 120, 300, 600),
		push: seconds("ocl_image_push_duration_seconds",
			"How long builds that push an image take; building and pushing are one step.", both, 10, 30, 60, 120, 180, 300, 600,
			1800, 3600),
		builds:  counter("ocl_build_total", "Builds by final state.", both),
		changes: counter("ocl_config_change_total", "Changes that led to a build.", pool),
		retries: counter("ocl_build_retries_total", "Builds that were retries.", pool),
		pushes:  counter("ocl_image_push_total", "Images that were pushed or not.", both),
		acts:    counter("dayone_build_decisions_total", "Decisions by action.", []string{"pool", "action"}),
		configs: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mco_mosc_count",
			Help: "MachineOSConfigs in the cluster."}),
		pools: map[string]string{},
	}
	for _, c := range []prometheus.Collector{m.state, m.jobState, m.pushState, m.start, m.end, m.active, m.layered,
		m.rolled, m.nodes, m.degraded, m.retriesNow, m.duration, m.queue, m.push, m.builds, m.changes, m.retries, m.pushes,
		m.acts, m.configs} {
		var again prometheus.AlreadyRegisteredError
		if err := to.Register(c); err != nil && !errors.As(err, &again) {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// only sets one state of a pool's and drops the others.
func only(g *prometheus.GaugeVec, pool, state string) {
	g.DeletePartialMatch(prometheus.Labels{"pool": pool})
	g.WithLabelValues(pool, state).Set(1)
}

// began counts a build by why it was begun.
func (m *metrics) began(pool string, action decide.Action) {
	switch action {
	case decide.Build:
		m.changes.WithLabelValues(pool).Inc()
	case decide.Retry, decide.Rebuild:
		m.retries.WithLabelValues(pool).Inc()
	}
	m.acts.WithLabelValues(pool, string(action)).Inc()
}

// jobStates and pushStates are those of MCO's metrics.
func jobStates() map[machineosbuild.State]string {
	return map[machineosbuild.State]string{machineosbuild.Prepared: "pending", machineosbuild.Building: "active",
		machineosbuild.Succeeded: "succeeded", machineosbuild.Failed: "failed", machineosbuild.Interrupted: "interrupted"}
}

// moved follows a build's state.
func (m *metrics) moved(b *mcfgv1.MachineOSBuild, from, to machineosbuild.State) {
	m.show(b, to)
	if b.Status.BuildStart == nil {
		return
	}
	pool, name := b.Labels[manifests.LabelTargetPool], jobStates()[to]
	switch {
	case to == machineosbuild.Building && from != machineosbuild.Building:
		if c := conditionTime(b, string(to)); c > 0 {
			m.queue.WithLabelValues(pool).Observe(max(0, c-float64(b.CreationTimestamp.Unix())))
		}
	case to.Terminal() && b.Status.BuildEnd != nil:
		took := b.Status.BuildEnd.Sub(b.Status.BuildStart.Time).Seconds()
		m.duration.WithLabelValues(pool, name).Observe(took)
		m.builds.WithLabelValues(pool, name).Inc()
		if to != machineosbuild.Interrupted {
			m.push.WithLabelValues(pool, name).Observe(took)
			m.pushes.WithLabelValues(pool, name).Inc()
		}
	}
}

// show sets the gauges that follow from a build in a state.
func (m *metrics) show(b *mcfgv1.MachineOSBuild, state machineosbuild.State) {
	pool, name := b.Labels[manifests.LabelTargetPool], jobStates()[state]
	only(m.state, pool, name)
	only(m.jobState, pool, name)
	if b.Status.BuildStart == nil {
		return
	}
	m.start.WithLabelValues(pool).Set(float64(b.Status.BuildStart.Unix()))
	if !state.Terminal() || b.Status.BuildEnd == nil {
		return
	}
	m.end.DeletePartialMatch(prometheus.Labels{"pool": pool})
	m.end.WithLabelValues(pool, name).Set(float64(b.Status.BuildEnd.Unix()))
	if state != machineosbuild.Interrupted {
		only(m.pushState, pool, name)
	}
}

func conditionTime(b *mcfgv1.MachineOSBuild, kind string) float64 {
	c := meta.FindStatusCondition(b.Status.Conditions, kind)
	if c == nil {
		return 0
	}
	return float64(c.LastTransitionTime.Unix())
}

// saw notes a MachineOSConfig that was read. Of one that is new to this process it shows the newest build, which
// another process may have followed to its end, and counts what alerts ask for from 0: Prometheus' increase() does not
// see that a series begins with 1.
func (m *metrics) saw(o observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.pools[o.config.Name]; known {
		return
	}
	pool := o.poolName()
	m.pools[o.config.Name] = pool
	m.configs.Set(float64(len(m.pools)))
	for _, state := range []machineosbuild.State{machineosbuild.Succeeded, machineosbuild.Failed,
		machineosbuild.Interrupted} {
		m.builds.WithLabelValues(pool, jobStates()[state])
	}
	for _, state := range []machineosbuild.State{machineosbuild.Succeeded, machineosbuild.Failed} {
		m.pushes.WithLabelValues(pool, jobStates()[state])
	}
	if len(o.builds) == 0 {
		return
	}
	newest := o.build(o.config.Annotations[manifests.AnnotationCurrentBuild])
	if newest == nil {
		newest = slices.MaxFunc(o.builds, func(a, b *mcfgv1.MachineOSBuild) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
	}
	if state := machineosbuild.StateOf(newest); state != machineosbuild.Initial {
		m.show(newest, state)
	}
}

// observe sets the gauges that follow from an observation. layered are the pool's nodes that run an image; less than
// zero: unknown.
func (m *metrics) observe(o observation, degraded bool, retries, layered int) {
	pool := o.poolName()
	running := 0
	for _, b := range o.builds {
		if !terminal(b) {
			running++
		}
	}
	m.active.WithLabelValues(pool).Set(float64(running))
	m.retriesNow.WithLabelValues(pool).Set(float64(retries))
	m.degraded.WithLabelValues(pool).Set(map[bool]float64{true: 1}[degraded])
	if o.pool != nil {
		m.nodes.WithLabelValues(pool).Set(float64(o.pool.Status.MachineCount))
		m.rolled.WithLabelValues(pool).Set(float64(o.pool.Status.UpdatedMachineCount))
	}
	if layered >= 0 {
		m.layered.WithLabelValues(pool).Set(float64(layered))
	}
}

// forget drops the gauges of a MachineOSConfig that is gone. It says whether the MachineOSConfig was known.
func (m *metrics) forget(config string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	pool, known := m.pools[config]
	if !known {
		return false
	}
	delete(m.pools, config)
	m.configs.Set(float64(len(m.pools)))
	for _, g := range []*prometheus.GaugeVec{m.state, m.jobState, m.pushState, m.start, m.end, m.active, m.degraded,
		m.retriesNow, m.layered, m.rolled, m.nodes} {
		g.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
	return true
}
