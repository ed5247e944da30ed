package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
)

// writes are how many MachineConfigs are written for one p99.
const writes = 2000

// BenchmarkAdmission measures what the policies add to a write: MachineConfigs with an owner's annotation, which the
// most policies look at. Writes with and without the policies take turns of a block each, so that both see the same
// machine. They are dry runs: everything but etcd's own write, whose disk would be all that a p99 shows.
func BenchmarkAdmission(b *testing.B) {
	for b.Loop() {
		var with, bare []time.Duration
		for range 10 {
			e := install(b)
			with = append(with, write(b, e, writes/10)...)
			for _, name := range []string{"dayone-push-spec", "dayone-post-config-action", "dayone-disruption-policy",
				"dayone-pool", "dayone-machineosconfig", "dayone-base-image", "dayone-opt-out"} {
				require.NoError(b, e.Client.Delete(b.Context(), policyBinding(name)))
			}
			awaitOpenDoor(b, e)
			bare = append(bare, write(b, e, writes/10)...)
		}
		b.ReportMetric(percentile(with, 99), "with-p99-ms")
		b.ReportMetric(percentile(bare, 99), "without-p99-ms")
		b.ReportMetric(percentile(with, 99)-percentile(bare, 99), "added-p99-ms")
		b.ReportMetric(percentile(with, 50)-percentile(bare, 50), "added-median-ms")
	}
}

// awaitOpenDoor waits until no policy refuses any more.
func awaitOpenDoor(t testing.TB, e *kubetest.Env) {
	t.Helper()
	bad := annotated(machineConfig("probe"), manifests.AnnotationOwnPostConfigAction, "Explode")
	require.Eventually(t, func() bool { return e.Client.Create(t.Context(), bad, client.DryRunAll) == nil }, waitLimit,
		waitEvery)
}

// write creates MachineConfigs one after the other and gives how long each took.
func write(t testing.TB, e *kubetest.Env, n int) (took []time.Duration) {
	t.Helper()
	for range n {
		o := annotated(withImage("50-bench", "plain"), manifests.AnnotationOwnPostConfigAction,
			"Drain, DaemonReload, Restart app.service")
		begun := time.Now()
		require.NoError(t, e.Client.Create(t.Context(), o, client.DryRunAll))
		took = append(took, time.Since(begun))
	}
	return took
}

// percentile is in milliseconds.
func percentile(took []time.Duration, p int) float64 {
	slices.Sort(took)
	return float64(took[len(took)*p/100].Microseconds()) / 1000
}
