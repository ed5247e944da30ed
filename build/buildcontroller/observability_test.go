package buildcontroller

import (
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
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
func gathered(t testing.TB, from *prometheus.Registry) map[string]float64 {
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
	reconcileOnce(w.ctx(), t, r, "worker")
	got := gathered(t, registry)
	for _, name := range []string{"ocl_build_total{worker,failed}", "ocl_image_push_total{worker,failed}"} {
		value, found := got[name]
		assert.True(t, found, "%s: increase() does not see a series that begins with 1", name)
		assert.Zero(t, value, name)
	}
	w.untilDegraded("worker")
	got = gathered(t, registry)
	assert.Equal(t, 1.0, got["dayone_build_degraded{worker}"])
	assert.Equal(t, 1.0, got["ocl_build_total{worker,failed}"])
	assert.Equal(t, 1.0, got["ocl_build_state{worker,failed}"])
	assert.True(t, events.has("Warning BuildFailed"), "%q", events.lines)
	assert.True(t, events.has("Warning BuildDegraded"), "%q", events.lines)
	assert.True(t, events.has("Warning JobFailed"), "%q", events.lines)
	assert.False(t, events.has("Warning ConfigReconcileFailed"), "the build failed, not the config: %q", events.lines)

	w.runner.outcome = nil
	w.editText("worker", plainText+"RUN echo two\n")
	w.untilAvailable("worker")
	got = gathered(t, registry)
	for name, want := range map[string]float64{"dayone_build_degraded{worker}": 0, "ocl_build_total{worker,succeeded}": 1,
		"ocl_build_state{worker,succeeded}": 1, "ocl_active_builds{worker}": 0,
		"ocl_config_change_total{worker}": 2, "ocl_build_duration_seconds{worker,succeeded}": 1,
		"ocl_image_push_total{worker,succeeded}": 1, "mco_mosc_count{}": 1,
		"ocl_build_job_state{worker,succeeded}": 1, "ocl_image_push_state{worker,succeeded}": 1,
		"ocl_build_queue_duration_seconds{worker}": 2, "ocl_image_push_duration_seconds{worker,succeeded}": 1} {
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

// TestMetricsOfANewLeader: a builder that starts after a build has ended shows the build as the one before it did, but
// for what it counts.
func TestMetricsOfANewLeader(t *testing.T) {
	w, _ := newFakeWorld(t)
	lead := func() *prometheus.Registry {
		o := w.options()
		o.Metrics = prometheus.NewRegistry()
		r, err := newReconciler(w.client, w.client, &heard{}, o)
		require.NoError(t, err)
		w.step = func() {
			w.runner.step(w.ctx())
			reconcileOnce(w.ctx(), t, r, "worker")
		}
		return o.Metrics.(*prometheus.Registry)
	}
	before := lead()
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	w.runner.outcome = userError
	w.editText("worker", plainText+"RUN false\n")
	w.untilDegraded("worker")
	after := lead()
	w.step()
	want, got := gathered(t, before), gathered(t, after)
	for _, name := range []string{"ocl_build_state{worker,failed}", "ocl_build_job_state{worker,failed}",
		"ocl_image_push_state{worker,failed}", "ocl_build_start_timestamp_seconds{worker}",
		"ocl_build_end_timestamp_seconds{worker,failed}", "dayone_build_degraded{worker}", "mco_mosc_count{}"} {
		assert.Positive(t, want[name], name)
		assert.Equal(t, want[name], got[name], name)
	}
	assert.NotContains(t, got, "ocl_build_state{worker,succeeded}", "one state at a time")
	assert.Zero(t, got["ocl_build_total{worker,failed}"], "it saw none fail")

	w.editText("worker", plainText)
	w.untilAvailable("worker")
	got = gathered(t, after)
	assert.Equal(t, 1.0, got["ocl_build_state{worker,succeeded}"], "the image of before is used again")
	assert.NotContains(t, got, "ocl_build_state{worker,failed}", "the gauges show the build that is in use")
}

// TestEventsOfMCO has the reasons that MCO's builder gives to events, each with its meaning.
func TestEventsOfMCO(t *testing.T) {
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
	layered := func(name, config, image string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{manifests.AnnotationCurrentConfig: config}}}
		if image != "" {
			n.Annotations[manifests.AnnotationCurrentImage] = image
		}
		w.create(n)
	}
	w.addPool("worker", "one", plainText)
	layered("a", "rendered-worker-a", "r.test/os@sha256:1")
	layered("b", "rendered-worker-a", "")
	layered("c", "rendered-infra-a", "r.test/os@sha256:1")
	w.untilAvailable("worker")
	for _, want := range []string{"Normal JobStarted", "Normal JobCompleted", "Normal JobDeleted"} {
		assert.True(t, events.has(want), "%s in %q", want, events.lines)
	}
	assert.False(t, events.has("Normal PoolConfigChanged"), "the first rendered config is no change")
	assert.InDelta(t, 1, gathered(t, registry)["ocl_layered_nodes_count{worker}"], 0,
		"of the pool's nodes one runs an image, and the third node is another pool's")

	w.render("worker", "b", "two")
	w.step()
	w.untilAvailable("worker")
	assert.True(t, events.has("Normal PoolConfigChanged"), "%q", events.lines)

	require.NoError(t, w.client.Delete(w.ctx(), w.config("worker")))
	w.until("the deletion is announced", func() bool { return events.has("Normal ConfigDeleted") })
}

// TestAConfigThatCannotBeReconciled says so with MCO's reason: there is no build that could fail.
func TestAConfigThatCannotBeReconciled(t *testing.T) {
	w, _ := newFakeWorld(t)
	events := &heard{}
	r, err := newReconciler(w.client, w.client, events, w.options())
	require.NoError(t, err)
	w.step = func() {
		w.runner.step(w.ctx())
		reconcileOnce(w.ctx(), t, r, "worker")
	}
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.RenderedImagePushSecret.Name = "no-such-secret" })
	w.editText("worker", plainText+"RUN echo two\n")
	w.untilDegraded("worker")
	assert.True(t, events.has("Warning ConfigReconcileFailed"), "%q", events.lines)
	assert.False(t, events.has("Warning JobFailed"), "%q", events.lines)
}
