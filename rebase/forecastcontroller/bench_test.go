package forecastcontroller_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/forecast"
)

// BenchmarkAdvisor5000 watches 5,000 nodes on a real API server: how long a forecast takes after a new rendered config,
// how many requests there are while nothing changes, and how much memory the process has in all, the test's own
// included.
func BenchmarkAdvisor5000(b *testing.B) {
	const nodes, idle = 5000, 30 * time.Second
	w := newWorld(b)
	large := strings.Repeat("x", 2000)
	var was, is []string
	for i := range 100 {
		was = append(was, fmt.Sprintf("/etc/files/%d=%s", i, large))
		is = append(is, fmt.Sprintf("/etc/files/%d=%sy", i, large))
	}
	w.config("rendered-many-1", was...)
	p := w.pool("many", "rendered-many-1")
	var wg sync.WaitGroup
	places := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range places {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%04d", i),
					Labels: map[string]string{"pool-many": ""}, Annotations: map[string]string{
						manifests.AnnotationCurrentConfig: "rendered-many-1",
						manifests.AnnotationDesiredConfig: "rendered-many-1", manifests.AnnotationState: "Done"}}}
				require.NoError(b, w.env.Client.Create(b.Context(), n))
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				for j := range 40 {
					n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{
						fmt.Sprintf("example.com/%d@sha256:%064d", j, j)}})
				}
				require.NoError(b, w.env.Client.Status().Update(b.Context(), n))
			}
		})
	}
	for i := range nodes {
		places <- i
	}
	close(places)
	wg.Wait()
	b.Cleanup(func() { _ = w.env.Client.DeleteAllOf(b.Context(), &corev1.Node{}) })
	w.advise()
	w.says("many", "Every node of pool many has rendered-many-1")
	for b.Loop() {
		w.config("rendered-many-2", is...)
		began := time.Now()
		change(w, p, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "rendered-many-2" })
		w.says("many", "rendered-many-2 changes 5000 nodes: Reboot")
		b.ReportMetric(time.Since(began).Seconds(), "forecast-s")
	}
	time.Sleep(5 * time.Second)
	before := w.calls.Count(nil)
	time.Sleep(idle)
	b.ReportMetric(float64(w.calls.Count(nil)-before)/idle.Seconds(), "idle-requests/s")
	data := w.data(forecast.ConfigMapName("many"))
	b.ReportMetric(float64(len(data[forecast.KeyForecast])+len(data[forecast.KeyNodes]))/1024, "KiB-published")
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
	raw, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	for line := range strings.Lines(string(raw)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			b.ReportMetric(kib/1024, "peak-MiB")
		}
	}
}
