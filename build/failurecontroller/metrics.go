package failurecontroller

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count since this process has begun to lead.
type metrics struct{ failures, retries *prometheus.CounterVec }

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dayone_build_failures_total",
			Help: "Failed builds beside a Machine Config Operator that were explained, by who can mend them."},
			[]string{"pool", "class"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dayone_build_retries_total",
			Help: "Rebuilds that were requested from the Machine Config Operator after a failure."}, []string{"pool"}),
	}
	for _, c := range []prometheus.Collector{m.failures, m.retries} {
		if err := to.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
