package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// phases are a node's: told, cordoned, drained, uncordoned, arrived.
const phases = 5

// fleetCluster is a pool of many nodes on an API server of its own, and the program with its own rights alone.
type fleetCluster struct {
	testing.TB
	env     *kubetest.Env
	program *fleetProcess
	agents  *agents
	nodes   int
}

// newFleet makes the pool, lets the program render it, and then makes its nodes, which have the pool's config.
func newFleet(t testing.TB, nodes int, unavailable string, classes int) *fleetCluster {
	t.Helper()
	f := &fleetCluster{TB: t, nodes: nodes, env: shared.New(t)}
	f.env.InstallRights(t)
	most := intstr.Parse(unavailable)
	limit, err := intstr.GetScaledValueFromIntOrPercent(&most, nodes, false)
	require.NoError(t, err)
	role := map[string]string{manifests.LabelRole: "worker"}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineConfigPoolSpec{MaxUnavailable: &most,
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role},
			NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}}}
	for _, o := range []client.Object{pool, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-worker",
		Labels: role}, Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}} {
		require.NoError(t, f.env.Client.Create(t.Context(), o))
	}
	f.program = startFleetProcess(t, kubeconfig(t, f.env.As(t, cluster.DefaultNamespace, cluster.Controller)))
	f.wait("the pool to be rendered", func() bool { return f.pool().Spec.Configuration.Name != "" })
	f.agents = watchAgents(t, f.env, limit, classes)
	f.makeNodes(f.pool().Spec.Configuration.Name)
	f.settled()
	return f
}

func (f *fleetCluster) makeNodes(config string) {
	f.Helper()
	var group errgroup.Group
	group.SetLimit(fleetWriters)
	for i := range f.nodes {
		group.Go(func() error { return f.env.Client.Create(f.Context(), nodeLikeARealOne(i, config)) })
	}
	require.NoError(f, group.Wait())
}

// nodeLikeARealOne has the size of a kubelet's: fifty images, four conditions.
func nodeLikeARealOne(i int, config string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i),
		Labels: map[string]string{"node-role.kubernetes.io/worker": "", corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)},
		Annotations: map[string]string{manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
			manifests.AnnotationState: manifests.StateDone}}}
	now := metav1.Now()
	for _, c := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		status := corev1.ConditionFalse
		if c == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: status, Reason: "KubeletHas" +
			string(c), LastHeartbeatTime: now, LastTransitionTime: now})
	}
	for k := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1 << 28, Names: []string{
			fmt.Sprintf("registry.example.com/some-project/some-image-%d@sha256:%064x", k, i*50+k),
			fmt.Sprintf("registry.example.com/some-project/some-image-%d:v1.2.%d", k, i)}})
	}
	return n
}

func (f *fleetCluster) pool() *mcfgv1.MachineConfigPool {
	f.Helper()
	var p mcfgv1.MachineConfigPool
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: "worker"}, &p))
	return &p
}

func (f *fleetCluster) wait(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(fleetPatience); !is(); time.Sleep(100 * time.Millisecond) {
		require.True(f, time.Now().Before(end), "waited too long for %s", what)
	}
}

// settled waits until every node and its record say what they have, and nothing more is written.
func (f *fleetCluster) settled() {
	f.Helper()
	f.wait("all nodes to be counted as updated", func() bool {
		s := f.pool().Status
		return int(s.UpdatedMachineCount) == f.nodes && int(s.ReadyMachineCount) == f.nodes &&
			s.Configuration.Name == f.pool().Spec.Configuration.Name
	})
	f.wait("all records to be there", func() bool {
		var records mcfgv1.MachineConfigNodeList
		require.NoError(f, f.env.Client.List(f.Context(), &records))
		return len(records.Items) == f.nodes
	})
	for before := -1; ; {
		now := f.program.account(f).total()
		if now == before {
			return
		}
		before = now
		time.Sleep(2 * time.Second)
	}
}

// change gives the pool another config and waits until it is rendered.
func (f *fleetCluster) change(argument string) string {
	f.Helper()
	before := f.pool().Spec.Configuration.Name
	patch := fmt.Sprintf(`{"spec":{"kernelArguments":[%q]}}`, argument)
	require.NoError(f, f.env.Client.Patch(f.Context(),
		&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-worker"}},
		client.RawPatch("application/merge-patch+json", []byte(patch))))
	f.wait("the pool to be rendered anew", func() bool { return f.pool().Spec.Configuration.Name != before })
	return f.pool().Spec.Configuration.Name
}

// beat lets nodes report that they live, as kubelets do every five minutes, for a time.
func beat(t testing.TB, c client.Client, nodes int, during time.Duration) {
	t.Helper()
	end, pause := time.Now().Add(during), 5*time.Minute/time.Duration(nodes)
	for i := 0; time.Now().Before(end); i++ {
		at := metav1.Now()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, at.UTC().
			Format(time.RFC3339))
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i%nodes)}}
		require.NoError(t, c.Status().Patch(context.Background(), n,
			client.RawPatch("application/strategic-merge-patch+json", []byte(patch))))
		time.Sleep(min(pause, time.Until(end)))
	}
}

// ratio is a rollout's simulated time against the shortest that maxUnavailable allows.
func (f *fleetCluster) ratio(took time.Duration) float64 {
	return float64(took) / (float64(longest) * math.Ceil(float64(f.nodes)/float64(f.agents.limit)))
}

func (f *fleetCluster) table(a account) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(a.Writes)) {
		fmt.Fprintf(&out, "%6d  %5.2f a node  %s\n", a.Writes[key], float64(a.Writes[key])/float64(f.nodes), key)
	}
	return out.String()
}

// TestARolloutOf200Nodes counts what the controllers write while agents that only talk to the API go to another config.
func TestARolloutOf200Nodes(t *testing.T) {
	f := newFleet(t, 200, "20%", 1)
	before := f.program.account(t)
	config := f.change("loglevel=3")
	took := f.agents.roll(config)
	f.settled()
	a := f.program.account(t).since(before)
	t.Log("\n" + f.table(a))
	assert.LessOrEqual(t, f.agents.mostAway, f.agents.limit, "never more nodes away than allowed")
	assert.InDelta(t, 1, f.ratio(took), 0.001, "the limit is always used up")
	// One for each: tainted, told, cordoned, drained, uncordoned, and how long it took. What a controller has written its
	// cache shows a moment later: on a busy machine a few are written twice, which is no write more for each node.
	twice := f.nodes / 10
	assert.LessOrEqual(t, a.Writes["PATCH nodes"], 6*f.nodes+twice)
	assert.LessOrEqual(t, a.Writes["PATCH machineconfignodes"], f.nodes+twice)
	assert.LessOrEqual(t, a.Writes["PATCH machineconfignodes/status"], 3*f.nodes+twice)
	assert.LessOrEqual(t, a.total(), 2*phases*f.nodes, "with what is written of the pool")
	assert.LessOrEqual(t, a.Writes["POST events"], f.nodes)

	// Something of the rollout may be written late; of heartbeats that made somebody write there would be no end.
	var written account
	for range 12 {
		before = f.program.account(t)
		beat(f, f.env.Client, f.nodes, 5*time.Second)
		if written = f.program.account(t).since(before); written.total() == 0 {
			break
		}
	}
	assert.Zero(t, written.total(), "heartbeats make nobody write: %v", written.Writes)
}

// BenchmarkRollout5000 is the same with 5,000 nodes, of which every other one is faster by 4 %.
func BenchmarkRollout5000(b *testing.B) {
	f := newFleet(b, 5000, "10%", 2)
	for i := 0; b.Loop(); i++ {
		before := f.program.account(b)
		began := time.Now()
		config := f.change(fmt.Sprint("loglevel=", i))
		took := f.agents.roll(config)
		b.ReportMetric(time.Since(began).Seconds(), "wall-s")
		f.settled()
		a := f.program.account(b).since(before)
		b.Log("\n" + f.table(a))
		b.ReportMetric(float64(a.total())/float64(f.nodes*phases), "writes/node-phase")
		b.ReportMetric(float64(a.Writes["POST events"])/float64(f.nodes), "events/node")
		b.ReportMetric(f.ratio(took), "makespan-ratio")
		b.ReportMetric(float64(a.Deciding.Microseconds())/1000/float64(a.Decisions), "ms/decision")
		b.ReportMetric(float64(f.agents.mostAway)/float64(f.agents.limit), "most-away")
		before, cpu := f.program.account(b), f.program.cpu(b)
		beat(f, f.env.Client, f.nodes, 10*time.Second)
		b.ReportMetric((f.program.cpu(b)-cpu).Seconds()/10*100, "idle-cpu-%")
		after := f.program.account(b)
		b.ReportMetric(float64(after.since(before).total()), "idle-writes")
		b.ReportMetric(after.HeapMiB, "heap-MiB")
		b.ReportMetric(peakMiB(b, f.program.cmd.Process.Pid), "peak-MiB")
	}
}
