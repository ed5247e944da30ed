package plan_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
)

// BenchmarkClusterPlan5000 is dayone cluster plan -f as a process of its own on a dump of 5,000 layered nodes, each
// with its MachineConfigNode, as kubectl get -o json writes them.
func BenchmarkClusterPlan5000(b *testing.B) {
	dir, plugin := bigDump(b, 5000), pluginOf(b)
	file := filepath.Join(b.TempDir(), "new.yaml")
	require.NoError(b, os.WriteFile(file, []byte(strings.Replace(layeredApp, "old", "new", 1)), 0o600))
	peak := int64(0)
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), plugin, "plan", "--from", dir, "-f", file)
		cmd.Env = append(os.Environ(), "KUBECONFIG=/nowhere")
		out, err := cmd.CombinedOutput()
		require.NoError(b, err, "%s", out)
		require.Contains(b, string(out), "Reload for 5000 nodes: Reload crio.service on 5000")
		usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		require.True(b, ok)
		peak = max(peak, usage.Maxrss)
	}
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
}

// bigDump writes the world of TestPlanOfLayeredPools with more nodes.
func bigDump(b *testing.B, nodes int) string {
	b.Helper()
	objects := layeredWorld(b)
	few := len(objects) - 1
	node, ok := objects[few].(*corev1.Node)
	require.True(b, ok)
	dir := writeDump(b, objects[:few-1])
	fill(node)
	record := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, ResourceVersion: "1"},
		Spec: mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: node.Name},
			Pool: mcfgv1.MCOObjectReference{Name: "worker"}}}
	record.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfigNode"))
	for _, kind := range []mcfgv1.StateProgress{mcfgv1.MachineConfigNodeUpdated, mcfgv1.MachineConfigNodeUpdatePrepared,
		mcfgv1.MachineConfigNodeUpdateExecuted, mcfgv1.MachineConfigNodeUpdatePostActionComplete,
		mcfgv1.MachineConfigNodeUpdateComplete, mcfgv1.MachineConfigNodeResumed, mcfgv1.MachineConfigNodeUpdateDrained,
		mcfgv1.MachineConfigNodeUpdateRebooted, mcfgv1.MachineConfigNodeUpdateUncordoned} {
		record.Status.Conditions = append(record.Status.Conditions, metav1.Condition{Type: string(kind),
			Status: metav1.ConditionFalse, Reason: "NotYetOccurred", LastTransitionTime: metav1.Now(),
			Message: "This node has not yet entered the phase of the update that this condition is about"})
	}
	writeMany(b, filepath.Join(dir, "nodes.json"), node, nodes)
	writeMany(b, filepath.Join(dir, "records.json"), record, nodes)
	return dir
}

// fill gives a node what a kubelet reports, fifty images with two names each among it.
func fill(n *corev1.Node) {
	n.ResourceVersion = "1"
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	for i := range 12 {
		n.Labels[fmt.Sprintf("feature.node.example.com/cpu-%d", i)] = "true"
		n.Annotations[fmt.Sprintf("csi.volume.example.com/node-%d", i)] = strings.Repeat("x", 80)
	}
	for i := range 50 {
		name := fmt.Sprintf("quay.example.com/openshift-release-dev/ocp-v4.0-art-dev-%d", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 400 << 20,
			Names: []string{name + "@sha256:" + strings.Repeat("a", 64), name + ":latest"}})
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse,
			LastHeartbeatTime: metav1.Now(), Reason: "KubeletIsFine", Message: "kubelet has no pressure of any kind"})
	}
}

// writeMany writes a list of copies that differ in their names.
func writeMany(b *testing.B, file string, o any, copies int) {
	b.Helper()
	raw, err := json.MarshalIndent(o, "        ", "    ")
	require.NoError(b, err)
	f, err := os.Create(file)
	require.NoError(b, err)
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "{\n    \"apiVersion\": \"v1\",\n    \"items\": [")
	for i := range copies {
		if i > 0 {
			fmt.Fprintln(w, ",")
		}
		fmt.Fprint(w, "        "+strings.ReplaceAll(string(raw), `"name": "w1"`, fmt.Sprintf(`"name": "w%05d"`, i)))
	}
	fmt.Fprintln(w, "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\"resourceVersion\": \"\"}\n}")
	require.NoError(b, w.Flush())
	require.NoError(b, f.Close())
}

// BenchmarkStatus5000 is kubectl dayone status, without and with --nodes, as a process of its own on a real API server
// with 5,000 Nodes of a kubelet's size, each with its MachineConfigNode.
func BenchmarkStatus5000(b *testing.B) {
	const nodes = 5000
	env := kubetest.Start(b, kubetest.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	plugin := pluginOf(b)
	run := func(args ...string) (out string, took time.Duration, peak int64) {
		b.Helper()
		cmd := exec.CommandContext(b.Context(), plugin, append(args, "--kubeconfig", env.Kubeconfig(b))...)
		began := time.Now()
		raw, err := cmd.CombinedOutput()
		require.NoError(b, err, "%s", raw)
		usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		require.True(b, ok)
		return string(raw), time.Since(began), usage.Maxrss
	}
	run("install", "--no-wait", "--mode", "full", "--image", "r.test/all:1")
	labels := map[string]string{"pool": "many"}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:          &metav1.LabelSelector{MatchLabels: labels},
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: labels}}}
	pool.Spec.Configuration.Name = "rendered-many-a"
	require.NoError(b, env.Client.Create(b.Context(), pool))
	var over errgroup.Group
	over.SetLimit(8)
	for i := range nodes {
		over.Go(func() error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%05d", i), Labels: map[string]string{
				"pool": "many"}, Annotations: map[string]string{manifests.AnnotationState: manifests.StateDone,
				manifests.AnnotationCurrentConfig: "rendered-many-a", manifests.AnnotationDesiredConfig: "rendered-many-a"}}}
			fill(n)
			n.ResourceVersion = ""
			status := n.Status
			record := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
				Spec: mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: n.Name},
					Pool:          mcfgv1.MCOObjectReference{Name: "many"},
					ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-many-a"}}}
			if err := errors.Join(env.Client.Create(b.Context(), n), env.Client.Create(b.Context(), record)); err != nil {
				return err
			}
			n.Status = status
			return env.Client.Status().Update(b.Context(), n)
		})
	}
	require.NoError(b, over.Wait())
	var most int64
	var all time.Duration
	for b.Loop() {
		out, _, _ := run("status")
		require.Contains(b, out, "dayone v0 in namespace")
		b.StopTimer()
		out, took, peak := run("status", "--nodes")
		require.Contains(b, out, " w04999 ")
		all, most = all+took, max(most, peak)
		b.StartTimer()
	}
	b.ReportMetric(all.Seconds()/float64(b.N), "nodes-s")
	b.ReportMetric(float64(most)/1024, "nodes-peak-MiB")
}

// pluginOf is this program under the plugin's name.
func pluginOf(b *testing.B) string {
	b.Helper()
	plugin := filepath.Join(b.TempDir(), "kubectl-dayone")
	self, err := os.Executable()
	require.NoError(b, err)
	require.NoError(b, os.Symlink(self, plugin))
	return plugin
}
