package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// BenchmarkAdvisor5000 runs the program in mode advisor, with its own rights, beside 5,000 Nodes on a real API server:
// how long a forecast takes after a new rendered config, how many requests the program makes while nothing changes but
// heartbeats, its lease included, and the most memory that its process had.
func BenchmarkAdvisor5000(b *testing.B) {
	const nodes, idle = 5000, 30 * time.Second
	w := newAdvisedWorld(b)
	large := strings.Repeat("x", 2000)
	config := func(name, end string) {
		files := make([]string, 0, 100)
		for i := range 100 {
			files = append(files, fmt.Sprintf(`{"path":"/etc/files/%d","mode":420,"contents":{"source":"data:,%s%s"}}`, i,
				large, end))
		}
		m := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + strings.Join(files, ",") + `]}}`)
		w.make(m)
	}
	target := func(name string) {
		w.change(func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = name })
	}
	config("rendered-many-1", "")
	target("rendered-many-1")
	require.NoError(b, w.env.Client.Delete(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0"}}))
	w.nodes(nodes)
	g := newGateway(b, w.advisor())
	p := start(b, "--mode", string(cluster.Advisor), "--namespace", cluster.AdvisorNamespace, "--kubeconfig", g.access)
	w.says("Every node of pool worker has rendered-many-1")
	for b.Loop() {
		config("rendered-many-2", "y")
		began := time.Now()
		target("rendered-many-2")
		w.says("rendered-many-2 changes 5000 nodes: Reboot")
		b.ReportMetric(time.Since(began).Seconds(), "forecast-s")
	}
	time.Sleep(5 * time.Second)
	before := g.all()
	beat(b, w.env.Client, nodes, idle)
	b.ReportMetric(float64(g.all()-before)/idle.Seconds(), "idle-requests/s")
	m := &corev1.ConfigMap{}
	require.NoError(b, w.env.Client.Get(b.Context(), client.ObjectKey{Namespace: cluster.AdvisorNamespace,
		Name: forecast.ConfigMapName("worker")}, m))
	b.ReportMetric(float64(len(m.Data[forecast.KeyForecast])+len(m.Data[forecast.KeyNodes]))/1024, "KiB-published")
	b.ReportMetric(peakMiB(b, p.cmd.Process.Pid), "peak-MiB")
}

// nodes makes Nodes of a kubelet's size that have the pool's config.
func (w *advisedWorld) nodes(count int) {
	w.Helper()
	var over sync.WaitGroup
	places := make(chan int)
	for range 8 {
		over.Go(func() {
			for i := range places {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i),
					Labels: w.pool.Spec.NodeSelector.MatchLabels, Annotations: map[string]string{
						manifests.AnnotationCurrentConfig: "rendered-many-1", manifests.AnnotationState: manifests.StateDone,
						manifests.AnnotationDesiredConfig: "rendered-many-1"}}}
				w.make(n)
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				for j := range 40 {
					n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{
						fmt.Sprintf("example.com/%d@sha256:%064d", j, j)}})
				}
				require.NoError(w, w.env.Client.Status().Update(w.Context(), n))
			}
		})
	}
	for i := range count {
		places <- i
	}
	close(places)
	over.Wait()
}
