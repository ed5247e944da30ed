package nodecontroller

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the controller; nil: nobody wants them.
type metrics struct {
	decisions prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	m := &metrics{decisions: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dayone_rollout_decision_seconds",
		Help:    "Time from the objects in memory to who of a pool's nodes goes next.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)})}
	if err := r.Register(m.decisions); err != nil {
		return nil, fmt.Errorf("register metrics of %s: %w", Name, err)
	}
	return m, nil
}

func (m *metrics) decided(took time.Duration) {
	if m != nil {
		m.decisions.Observe(took.Seconds())
	}
}
