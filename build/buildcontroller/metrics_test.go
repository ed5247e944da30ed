package buildcontroller

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// measures reports whether metrics have these values.
func (w *world) measures(want map[string]float64) func() bool {
	return func() bool {
		got := gathered(w.t, w.metrics)
		for name, value := range want {
			if is, found := got[name]; !found || is != value {
				return false
			}
		}
		return true
	}
}

// measuredBuilds compares the metrics with what the builds' status says.
func measuredBuilds(t *testing.T, w *world) {
	w.metrics = prometheus.NewRegistry()
	w.restart()
	w.runner.hold = true
	w.addPool("worker", "one", plainText)
	w.until("a pod works", func() bool { return len(w.inState("worker", machineosbuild.Building)) == 1 })
	first := w.inState("worker", machineosbuild.Building)[0]
	began := float64(first.Status.BuildStart.Unix())
	w.until("the beginning is measured", w.measures(map[string]float64{
		"ocl_build_start_timestamp_seconds{worker}": began, "ocl_active_builds{worker}": 1}))
	assert.NotContains(t, gathered(t, w.metrics), "ocl_build_retries_total{worker}", "it is no retry")

	w.clock.jump(90 * time.Second)
	w.runner.hold = false
	w.untilAvailable("worker")
	first = w.build(first.Name)
	ended := float64(first.Status.BuildEnd.Unix())
	assert.GreaterOrEqual(t, ended-began, 90.0)
	w.until("the end is measured", w.measures(map[string]float64{
		"ocl_build_start_timestamp_seconds{worker}": began, "ocl_build_end_timestamp_seconds{worker,succeeded}": ended}))

	w.runner.outcome = transientError
	w.editText("worker", plainText+"RUN echo two\n")
	for n := range 2 {
		w.until("it failed once more", func() bool {
			b, ok := w.builds("worker")[w.config("worker").Annotations[manifests.AnnotationCurrentBuild]]
			return ok && machineosbuild.StateOf(&b) == machineosbuild.Failed &&
				w.pool("worker").Annotations[manifests.AnnotationBuildRetries] == counted(n)
		})
		if n == 0 {
			w.clock.jump(decide.DefaultMaxBackoff)
			w.touch("worker") // instead of the pause
		}
	}
	last := w.build(w.config("worker").Annotations[manifests.AnnotationCurrentBuild])
	w.until("the retry is counted, and its end is the only one", w.measures(map[string]float64{
		"ocl_build_retries_total{worker}":                1,
		"ocl_build_start_timestamp_seconds{worker}":      float64(last.Status.BuildStart.Unix()),
		"ocl_build_end_timestamp_seconds{worker,failed}": float64(last.Status.BuildEnd.Unix()),
	}))
	assert.NotContains(t, gathered(t, w.metrics), "ocl_build_end_timestamp_seconds{worker,succeeded}")

	w.runner.outcome = nil
	w.askRebuild("worker")
	w.untilAvailable("worker")
	w.until("a rebuild counts as a retry", w.measures(map[string]float64{"ocl_build_retries_total{worker}": 2}))
}

// touch lets the controller look at a MachineOSConfig.
func (w *world) touch(name string) {
	w.t.Helper()
	w.editConfig(name, func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "example.com/touch", c.ResourceVersion)
	})
}

// measuredRollout compares the metrics with the counts of the pool, which the node controller writes.
func measuredRollout(t *testing.T, w *world) {
	w.metrics = prometheus.NewRegistry()
	w.restart()
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	for _, updated := range []int32{0, 1, 3} {
		w.until("the pool's counts are written", func() bool {
			p := w.pool("worker")
			p.Status.MachineCount, p.Status.UpdatedMachineCount = 3, updated
			return w.client.Status().Update(w.ctx(), p) == nil
		})
		w.until("the rollout is measured", w.measures(map[string]float64{
			"ocl_rollout_total_nodes{worker}": 3, "ocl_rollout_updated_nodes{worker}": float64(updated)}))
	}
	assert.NoError(t, client.IgnoreNotFound(w.client.Delete(w.ctx(), w.config("worker"))))
	w.until("a pool that is opted out is not measured", func() bool {
		got := gathered(t, w.metrics)
		for _, name := range []string{"ocl_rollout_total_nodes", "ocl_rollout_updated_nodes",
			"ocl_build_start_timestamp_seconds"} {
			if _, found := got[name+"{worker}"]; found {
				return false
			}
		}
		_, found := got["ocl_build_end_timestamp_seconds{worker,succeeded}"]
		return !found
	})
}
