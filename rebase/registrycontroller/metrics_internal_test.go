package registrycontroller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/wanted"
)

// A node that is off keeps its last report.
func TestReadyIsOfReadyNodes(t *testing.T) {
	m, list := newMetrics(), wanted.List{}
	report := wanted.Report{Ready: true, List: list.Hash()}
	m.set(list, []registrystatus.Member{{Name: "on", Ready: true, Report: report}, {Name: "off", Report: report},
		{Name: "behind", Ready: true, Report: wanted.Report{Ready: true, List: "another"}}}, 0, nil)
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(m))
	families, err := registry.Gather()
	require.NoError(t, err)
	ready := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "dayone_replica_ready" {
			for _, s := range f.GetMetric() {
				ready[s.GetLabel()[0].GetValue()] = s.GetGauge().GetValue()
			}
		}
	}
	assert.Equal(t, map[string]float64{"on": 1, "off": 0, "behind": 0}, ready)
}
