package buildcontroller

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

// heard keeps events' reasons and texts.
type heard struct{ lines []string }

func (h *heard) Eventf(_, _ runtime.Object, kind, reason, _, format string, args ...any) {
	text := format
	if len(args) == 1 && format == "%s" {
		if s, ok := args[0].(string); ok {
			text = s
		}
	}
	h.lines = append(h.lines, kind+" "+reason+" "+text)
}

func (h *heard) has(prefix string) bool {
	return slices.ContainsFunc(h.lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
}

// gathered gives the values of metrics by "name{label values}".
func gathered(t *testing.T, from *prometheus.Registry) map[string]float64 {
	families, err := from.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return out
}

// TestEventsAndMetrics follows one pool through a failing build and the build that mends it.
func TestEventsAndMetrics(t *testing.T) {
	w, _ := newFakeWorld(t)
	registry, events := prometheus.NewRegistry(), &heard{}
	o := w.options()
	o.Metrics = registry
	r, err := newReconciler(w.client, w.client, events, o)
	require.NoError(t, err)
	w.step = func() {
		w.runner.step(w.ctx())
		reconcileOnce(w.ctx(), t, r, "worker")
	}
	w.runner.outcome = userError
	w.addPool("worker", "one", plainText)
	w.untilDegraded("worker")
	got := gathered(t, registry)
	assert.Equal(t, 1.0, got["dayone_build_degraded{worker}"])
	assert.Equal(t, 1.0, got["ocl_build_total{worker,failed}"])
	assert.Equal(t, 1.0, got["ocl_build_state{worker,failed}"])
	assert.True(t, events.has("Warning BuildFailed"), "%q", events.lines)
	assert.True(t, events.has("Warning BuildDegraded"), "%q", events.lines)

	w.runner.outcome = nil
	w.editText("worker", plainText+"RUN echo two\n")
	w.untilAvailable("worker")
	got = gathered(t, registry)
	for name, want := range map[string]float64{"dayone_build_degraded{worker}": 0, "ocl_build_total{worker,succeeded}": 1,
		"ocl_build_state{worker,succeeded}": 1, "ocl_active_builds{worker}": 0,
		"ocl_config_change_total{worker}": 2, "ocl_build_duration_seconds{worker,succeeded}": 1,
		"ocl_image_push_total{worker,succeeded}": 1, "mco_mosc_count{}": 1} {
		value, found := got[name]
		assert.True(t, found, name)
		assert.InDelta(t, want, value, 0, name)
	}
	assert.NotContains(t, got, "ocl_build_state{worker,failed}", "one state at a time")
	for _, reason := range []string{"Normal BuildStarted", "Normal JobCreated", "Normal BuildPreparing",
		"Normal BuildBuilding", "Normal BuildCompleted", "Normal BuildRecovered", "Normal ConfigReconciled"} {
		assert.True(t, events.has(reason), "%s in %q", reason, events.lines)
	}
}
