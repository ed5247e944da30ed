package nodecontroller_test

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// says are a pool's conditions and counts.
type says struct {
	updated, updating, nodeDegraded, degraded bool
	// reason is Updating's.
	reason string
	// counts are machines, updated, ready, unavailable and degraded ones.
	counts [5]int32
}

// Conditions and counts mean what they mean with MCO.
func TestPoolConditions(t *testing.T) {
	for _, c := range []struct {
		name string
		// build is the state of the build for the pool's config, layered pools only. moved: the pool has a new config.
		layered, moved, paused bool
		build                  mcfgv1.BuildProgress
		nodes                  func(f *fixture)
		want                   says
	}{
		{name: "converged", want: says{updated: true, reason: "AllNodesUpdated", counts: [5]int32{2, 2, 2, 0, 0}}},
		{name: "outstanding", moved: true, want: says{updating: true, reason: "NodesMoving",
			counts: [5]int32{2, 0, 0, 1, 0}}},
		{name: "outstanding-and-nothing-moves", moved: true, nodes: func(f *fixture) { f.cordon("a"); f.cordon("b") },
			want: says{updating: true, reason: "Waiting", counts: [5]int32{2, 0, 0, 2, 0}}},
		{name: "paused", moved: true, paused: true, want: says{reason: "Paused", counts: [5]int32{2, 0, 0, 0, 0}}},
		{name: "paused-and-converged", paused: true, want: says{updated: true, reason: "AllNodesUpdated",
			counts: [5]int32{2, 2, 2, 0, 0}}},
		{name: "a-node-is-cordoned", nodes: func(f *fixture) { f.cordon("a") },
			want: says{updating: true, reason: "Waiting", counts: [5]int32{2, 2, 1, 1, 0}}},
		{name: "a-node-is-not-ready", nodes: func(f *fixture) { f.ready("a", false) },
			want: says{updating: true, reason: "Waiting", counts: [5]int32{2, 2, 1, 1, 0}}},
		{name: "a-node-is-degraded", moved: true, nodes: func(f *fixture) { f.agent("a", fail("disk full")) },
			want: says{updating: true, nodeDegraded: true, degraded: true, reason: "Waiting",
				counts: [5]int32{2, 0, 0, 0, 1}}},
		{name: "a-record-is-unreadable", nodes: func(f *fixture) { f.garble("a") },
			want: says{updating: true, nodeDegraded: true, degraded: true, reason: "Waiting",
				counts: [5]int32{2, 1, 1, 1, 0}}},
		{name: "layered", layered: true, build: mcfgv1.MachineOSBuildSucceeded,
			want: says{updated: true, reason: "AllNodesUpdated", counts: [5]int32{2, 2, 2, 0, 0}}},
		{name: "rebuild-runs", layered: true, build: mcfgv1.MachineOSBuilding,
			want: says{updating: true, reason: "ImageOutstanding", counts: [5]int32{2, 2, 2, 0, 0}}},
		{name: "build-failed", layered: true, build: mcfgv1.MachineOSBuildFailed,
			want: says{reason: "ImageBuildFailed", counts: [5]int32{2, 2, 2, 0, 0}}},
		{name: "build-outstanding", layered: true, moved: true,
			want: says{updating: true, reason: "ImageOutstanding", counts: [5]int32{2, 0, 0, 0, 0}}},
		{name: "build-outstanding-paused", layered: true, moved: true, paused: true,
			want: says{updating: true, reason: "ImageOutstanding", counts: [5]int32{2, 0, 0, 0, 0}}},
		{name: "build-failed-paused", layered: true, paused: true, build: mcfgv1.MachineOSBuildFailed,
			want: says{reason: "ImageBuildFailed", counts: [5]int32{2, 2, 2, 0, 0}}},
		{name: "layered-and-degraded", layered: true, build: mcfgv1.MachineOSBuildSucceeded,
			nodes: func(f *fixture) { f.agent("a", fail("disk full")) },
			want:  says{nodeDegraded: true, degraded: true, reason: "Degraded", counts: [5]int32{2, 1, 1, 1, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, nodecontroller.Options{})
			first := "rendered-" + f.pool + "-1"
			at := target.Target{Config: first}
			if c.layered {
				at.Image = image(1)
				f.layer("one", first, image(1))
			}
			f.node("a", at)
			f.node("b", at)
			if c.build != "" && c.build != mcfgv1.MachineOSBuildSucceeded {
				f.rebuild(first, c.build)
			}
			config := first
			if c.moved {
				config = "rendered-" + f.pool + "-2"
			}
			f.render(config, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = c.paused })
			if c.moved && c.nodes != nil && c.want.degraded {
				f.look() // its agent gives up at the new config
			}
			if c.nodes != nil {
				c.nodes(f)
			}
			f.look()
			if c.name == "outstanding" {
				f.look() // who was sent is seen at the next look
			}
			assert.Equal(t, c.want, f.says())
			still := f.object().ResourceVersion
			f.restart()
			f.look()
			assert.Equal(t, still, f.object().ResourceVersion, "nothing to say, nothing written")
		})
	}
}

// TestCountsOfNothingAreWritten reads what kubectl's columns and jsonpath read: a 0 is there, too.
func TestCountsOfNothingAreWritten(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	f.render("rendered-" + f.pool + "-1")
	f.look()
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfigPool"))
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(f.object()), raw))
	for _, name := range []string{"machineCount", "updatedMachineCount", "readyMachineCount", "unavailableMachineCount",
		"degradedMachineCount"} {
		_, found, err := unstructured.NestedInt64(raw.Object, "status", name)
		require.NoError(t, err)
		assert.True(t, found, name)
	}
}

func (f *fixture) says() says {
	f.Helper()
	st := f.object().Status
	is := func(t mcfgv1.MachineConfigPoolConditionType) bool {
		return f.condition(t).Status == corev1.ConditionTrue
	}
	return says{is(mcfgv1.MachineConfigPoolUpdated), is(mcfgv1.MachineConfigPoolUpdating),
		is(mcfgv1.MachineConfigPoolNodeDegraded), is(mcfgv1.MachineConfigPoolDegraded),
		f.condition(mcfgv1.MachineConfigPoolUpdating).Reason, [5]int32{st.MachineCount, st.UpdatedMachineCount,
			st.ReadyMachineCount, st.UnavailableMachineCount, st.DegradedMachineCount}}
}

func (f *fixture) cordon(node string) {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	n.Spec.Unschedulable = true
	require.NoError(f, f.env.Client.Update(f.Context(), &n))
}

// garble writes into a node's record what nobody can read.
func (f *fixture) garble(node string) {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	n.Annotations[manifests.AnnotationDesiredImage] = "not an image"
	require.NoError(f, f.env.Client.Update(f.Context(), &n))
}

// rebuild is what the builder leaves of a further build for a config in a state.
func (f *fixture) rebuild(config string, state mcfgv1.BuildProgress) {
	f.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-again",
		Labels: map[string]string{manifests.LabelRenderedMachineConfig: config}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: f.pool}, RenderedImagePushSpec: "r.example.com/os/worker:y"}}
	f.create(b)
	start := metav1.NewTime(time.Now().Add(-time.Minute))
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start,
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(state), Status: metav1.ConditionTrue, Reason: "Said",
			LastTransitionTime: metav1.Now()}}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), b))
	m := &mcfgv1.MachineOSConfig{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.pool}, m))
	m.Annotations = map[string]string{manifests.AnnotationCurrentBuild: b.Name}
	require.NoError(f, f.env.Client.Update(f.Context(), m))
}

// A pool's status and its metrics count the same nodes, and events tell once what was done.
func TestPoolsAreShownUnderMCOsNames(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Self: "itself"})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: first})
	f.node("b", target.Target{Config: first})
	shown := f.measure()
	f.look()
	assert.Contains(t, <-f.ev.Events, "Normal Completed all nodes have "+first)
	f.render(second)
	f.look()
	f.look()
	assert.Contains(t, <-f.ev.Events, "Normal SetDesiredConfig sent to "+second+": "+f.name("a"))
	assert.Contains(t, <-f.ev.Events, "Normal Updating the nodes go to "+second)
	pool := `pool="` + f.pool + `"`
	got := shown()
	for name, want := range map[string]float64{"mco_machine_count": 2, "mco_updated_machine_count": 0,
		"mco_degraded_machine_count": 0, "mco_unavailable_machine_count": 1, "dayone_rollout_stopped": 0} {
		assert.Equal(t, want, got[name+"{"+pool+"}"], name)
	}
	assert.Equal(t, 1.0, got[`dayone_rollout_waiting_nodes{`+pool+`,reason="MaxUnavailable"}`], got)
	assert.Contains(t, got, `mcc_pool_alert{node="`+f.name("a")+`"}`)
	assert.Contains(t, got, `mcc_pool_alert{node="initialize"}`)
	assert.Contains(t, got, `mco_state{node="`+f.name("a")+`",`+pool+`,reason="NodesMoving",state="Updating"}`)
	for range 5 {
		f.look()
	}
	assert.Empty(t, f.ev.Events, "nothing is told again while nothing changes")

	require.NoError(t, f.env.Client.Delete(t.Context(), f.object()))
	f.look()
	assert.NotContains(t, shown(), "mco_machine_count{"+pool+"}")
}

// An empty node selector is told once for each change of the pool, and selects nothing.
func TestAPoolThatWouldSelectAllIsTold(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	f.node("a", target.Target{Config: "rendered-" + f.pool + "-1"})
	p := f.object()
	p.Spec.NodeSelector = &metav1.LabelSelector{}
	require.NoError(t, f.env.Client.Update(t.Context(), p))
	for range 3 {
		f.look()
	}
	told := 0
	for len(f.ev.Events) > 0 {
		if strings.Contains(<-f.ev.Events, "Warning SelectingAll") {
			told++
		}
	}
	assert.Equal(t, 1, told)
	assert.Zero(t, f.object().Status.MachineCount)
}

// The control plane's records are told one by one, and no worker's is.
func TestRecordsOfTheControlPlaneAreTold(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	f.node("a", target.Target{Config: "rendered-" + f.pool + "-1", Image: image(1)})
	before := &corev1.Node{}
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("a")}, before))
	f.agent("a", func(r *nodestate.Record) { r.State, r.DesiredImage = nodestate.StateWorking, "" })
	after := &corev1.Node{}
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("a")}, after))
	nodecontroller.TellChanges(f.ev, f.object(), before, after)
	assert.Empty(t, f.ev.Events)
	master := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "master"}}
	nodecontroller.TellChanges(f.ev, master, before, after)
	require.Len(t, f.ev.Events, 2)
	assert.Contains(t, <-f.ev.Events,
		"AnnotationChange node "+f.name("a")+" now has "+manifests.AnnotationState+"=Working")
	assert.Contains(t, <-f.ev.Events, "no longer has "+manifests.AnnotationDesiredImage)
	nodecontroller.TellChanges(f.ev, master, after, after)
	assert.Empty(t, f.ev.Events)
}
