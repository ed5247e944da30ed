package forecastcontroller

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"dayone.dev/dayone/rebase/forecast"
)

// metrics are what monitoring sees of the forecasts.
type metrics struct {
	level, nodes, waiting *prometheus.GaugeVec
	published, leftOut    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		level: gauge("dayone_forecast_level", "The worst that the pool's target does to a node: 0 nothing, 1 quiet, "+
			"2 reload, 3 drain, 4 reboot, 5 impossible.", "pool"),
		nodes: gauge("dayone_forecast_nodes", "Nodes that the pool's target changes, by how much.", "pool", "level"),
		waiting: gauge("dayone_nodes_waiting", "Nodes that do not have the pool's target and do not go now, by reason.",
			"pool", "reason"),
		published: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dayone_policies_published",
			Help: "Owners' rules that are entries of MachineConfiguration cluster."}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dayone_policies_left_out",
			Help: "Owners' rules that could not be published; ConfigMap dayone-policies says why."}),
	}
	for _, c := range []prometheus.Collector{m.level, m.nodes, m.waiting, m.published, m.leftOut} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// of says what was published of a pool.
func (m *metrics) of(pool string, p forecast.Published) {
	m.without(pool)
	m.level.WithLabelValues(pool).Set(float64(p.Level))
	for level, n := range p.Levels {
		m.nodes.WithLabelValues(pool, level.String()).Set(float64(n))
	}
	for reason, n := range p.Waiting {
		m.waiting.WithLabelValues(pool, reason).Set(float64(n))
	}
}

// without forgets a pool.
func (m *metrics) without(pool string) {
	for _, v := range []*prometheus.GaugeVec{m.level, m.nodes, m.waiting} {
		v.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}
