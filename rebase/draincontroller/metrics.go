package draincontroller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what MCO's controller shows of drains, under its name and label, and dayone's own.
type metrics struct {
	// failed has a series for each node whose drain takes longer than its limit. Source: MCO,
	// pkg/controller/common/metrics.go.
	failed *prometheus.GaugeVec
	took   prometheus.Histogram
}

func newMetrics() metrics {
	m := metrics{
		failed: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mcc_drain_err",
			Help: "1 for a node whose drain takes longer than its limit and continues."}, []string{"node"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dayone_drain_duration_seconds",
			Help: "How long the drains of nodes took that have ended.", Buckets: prometheus.ExponentialBuckets(1, 2, 14)}),
	}
	// MCO has this one from its start on; dashboards count on it.
	m.failed.WithLabelValues("initialize").Set(0)
	return m
}

// register adds the metrics to those that somebody reads; nil: nobody does.
func (m metrics) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	return errors.Join(to.Register(m.failed), to.Register(m.took))
}
