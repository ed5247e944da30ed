package optin

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count MachineOSConfigs by verdict and show the builder's phase.
type metrics struct {
	configs *prometheus.GaugeVec
	phase   *prometheus.GaugeVec
	left    prometheus.Gauge

	mu       sync.Mutex
	verdicts map[string]bool
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		configs: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dayone_optin_machineosconfigs",
			Help: "MachineOSConfigs by whether they opt their pool in."}, []string{"opted_in"}),
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dayone_optin_builder_phase",
			Help: "1 for the phase in which the builder is."}, []string{"phase"}),
		left: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dayone_optin_leftovers",
			Help: "Objects of builds that have to go before the builder stops."}),
		verdicts: map[string]bool{},
	}
	for _, c := range []prometheus.Collector{m.configs, m.phase, m.left} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of opt-in: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observe(config string, optedIn bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verdicts[config] = optedIn
	m.count()
}

func (m *metrics) forget(config string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.verdicts, config)
	m.count()
}

func (m *metrics) count() {
	in := 0
	for _, optedIn := range m.verdicts {
		if optedIn {
			in++
		}
	}
	m.configs.WithLabelValues("true").Set(float64(in))
	m.configs.WithLabelValues("false").Set(float64(len(m.verdicts) - in))
}

func (m *metrics) show(p phase, left int) {
	for _, other := range phases() {
		value := 0.0
		if other == p {
			value = 1
		}
		m.phase.WithLabelValues(string(other)).Set(value)
	}
	m.left.Set(float64(left))
}
