package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
)

// underMCO is a pool of three nodes at config 1 that are to have config 2.
func underMCO(change ...func(*rollout.Cluster)) *rollout.Cluster {
	c := &rollout.Cluster{Actor: disruption.ActorMCO}
	p := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"worker": ""}}
	p.Spec.Configuration.Name = "rendered-worker-2"
	c.Pools = []mcfgv1.MachineConfigPool{p}
	for i := range 3 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"worker": ""},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)), Annotations: map[string]string{}}}
		record(n, "rendered-worker-1", "rendered-worker-1", "Done", "")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		c.Nodes = append(c.Nodes, n)
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func record(n *corev1.Node, current, desired, state, reason string) {
	n.Annotations[manifests.AnnotationCurrentConfig], n.Annotations[manifests.AnnotationDesiredConfig] = current, desired
	n.Annotations[manifests.AnnotationState], n.Annotations[manifests.AnnotationReason] = state, reason
}

// TestWhyNodesWaitForMCO compares with what MCO's node controller does.
func TestWhyNodesWaitForMCO(t *testing.T) {
	const old, is = "rendered-worker-1", "rendered-worker-2"
	cases := []struct {
		name   string
		change func(*rollout.Cluster)
		// want are the nodes' reasons; says is in the last one's message.
		want []string
		says string
	}{
		{"the oldest goes first", func(*rollout.Cluster) {}, []string{"Turn", "MaxUnavailable", "MaxUnavailable"},
			"others go first"},
		{"no canaries, no windows, no gate", func(c *rollout.Cluster) {
			c.Nodes[2].Labels[manifests.LabelCanary] = ""
			c.Pools[0].Annotations = map[string]string{manifests.AnnotationMaintenanceWindows: "never",
				manifests.AnnotationMaxDisruption: "Quiet"}
		}, []string{"Turn", "MaxUnavailable", "MaxUnavailable"}, ""},
		{"paused", func(c *rollout.Cluster) { c.Pools[0].Spec.Paused = true }, []string{"Paused", "Paused", "Paused"},
			"spec.paused"},
		{"a place is taken", func(c *rollout.Cluster) { record(c.Nodes[0], old, is, "Working", "") },
			[]string{"Working", "MaxUnavailable", "MaxUnavailable"}, "at most 1 may be: n0"},
		{"a degraded node blocks", func(c *rollout.Cluster) { record(c.Nodes[0], old, is, "Degraded", "no space") },
			[]string{"NodeDegraded", "DegradedNode", "DegradedNode"}, "while n0 failed"},
		{"a node that failed at its image takes a place for good", func(c *rollout.Cluster) {
			record(c.Nodes[0], is, is, "Degraded", "no pull")
		}, []string{"NodeDegraded", "MaxUnavailable", "MaxUnavailable"}, "n0"},
		{"cordoned", func(c *rollout.Cluster) { c.Nodes[0].Spec.Unschedulable = true },
			[]string{"Cordoned", "MaxUnavailable", "MaxUnavailable"}, "n0"},
		{"not ready", func(c *rollout.Cluster) {
			c.Pools[0].Spec.MaxUnavailable = new(intstr.FromInt32(2))
			c.Nodes[1].Status.Conditions[0].Status = corev1.ConditionFalse
		}, []string{"Turn", "NotReady", "MaxUnavailable"}, ""},
		{"drained", func(c *rollout.Cluster) {
			record(c.Nodes[0], old, is, "Working", "")
			c.Nodes[0].Annotations[manifests.MCOPrefix+"desiredDrain"] = "drain-" + is
		}, []string{"Draining", "MaxUnavailable", "MaxUnavailable"}, ""},
		{"drained already", func(c *rollout.Cluster) {
			record(c.Nodes[0], old, is, "Working", "")
			c.Nodes[0].Annotations[manifests.MCOPrefix+"desiredDrain"] = "drain-" + is
			c.Nodes[0].Annotations[manifests.MCOPrefix+"lastAppliedDrain"] = "drain-" + is
		}, []string{"Working", "MaxUnavailable", "MaxUnavailable"}, ""},
		{"uncordoned on its way", func(c *rollout.Cluster) {
			record(c.Nodes[0], old, is, "Working", "")
			c.Nodes[0].Annotations[manifests.MCOPrefix+"desiredDrain"] = "uncordon-" + is
		}, []string{"Working", "MaxUnavailable", "MaxUnavailable"}, ""},
		{"an agent that has said nothing", func(c *rollout.Cluster) { record(c.Nodes[0], "", "", "", "") },
			[]string{"AgentSilent", "MaxUnavailable", "MaxUnavailable"}, "n0"},
		{"what is deferred counts on the control plane only", func(c *rollout.Cluster) {
			c.Deferred = map[string]string{"n0": "the operator runs on it"}
		}, []string{"Turn", "MaxUnavailable", "MaxUnavailable"}, ""},
		{"the image is not built", func(c *rollout.Cluster) {
			c.Configs = []mcfgv1.MachineOSConfig{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
			c.Configs[0].Spec.MachineConfigPool.Name = "worker"
		}, []string{"ImageOutstanding", "ImageOutstanding", "ImageOutstanding"}, "no MachineOSBuild"},
		{"the build failed", func(c *rollout.Cluster) {
			c.Configs = []mcfgv1.MachineOSConfig{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
			c.Configs[0].Spec.MachineConfigPool.Name = "worker"
			b := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
			b.Spec.MachineConfig.Name, b.Spec.MachineOSConfig.Name = is, "worker"
			b.Status.Conditions = []metav1.Condition{{Type: "Failed", Status: metav1.ConditionTrue}}
			c.Builds = []mcfgv1.MachineOSBuild{b}
		}, []string{"ImageOutstanding", "ImageOutstanding", "ImageOutstanding"}, "b failed"},
		{"annotations that cannot be read", func(c *rollout.Cluster) {
			c.Nodes[0].Annotations[manifests.AnnotationState] = "Sleeping"
		}, []string{"RecordUnreadable", "MaxUnavailable", "MaxUnavailable"}, "n0"},
		{"a limit that cannot be read", func(c *rollout.Cluster) {
			c.Pools[0].Spec.MaxUnavailable = new(intstr.FromString("many"))
		}, []string{"PoolStopped", "PoolStopped", "PoolStopped"}, "read maxUnavailable of pool worker"},
		{"a node that failed at an earlier target", func(c *rollout.Cluster) {
			c.Pools[0].Spec.MaxUnavailable = new(intstr.FromInt32(1))
			record(c.Nodes[1], old, "rendered-worker-0", "Degraded", "no space")
		}, []string{"Turn", "MaxUnavailable", "MaxUnavailable"}, "others go first"},
		{"a node that failed leaves a place to others", func(c *rollout.Cluster) {
			c.Pools[0].Spec.MaxUnavailable = new(intstr.FromInt32(2))
			record(c.Nodes[0], old, is, "Degraded", "no space")
		}, []string{"NodeDegraded", "Turn", "MaxUnavailable"}, "others go first"},
		{"a node on its way to an earlier target, ready", func(c *rollout.Cluster) {
			record(c.Nodes[2], old, "rendered-worker-0", "Working", "")
		}, []string{"MaxUnavailable", "MaxUnavailable", "MaxUnavailable"}, "at most 1 may be: n2"},
		{"the operator's node of the control plane goes last", func(c *rollout.Cluster) {
			c.Pools[0].Name, c.Deferred = "master", map[string]string{"n0": "the operator runs on it"}
		}, []string{"Deferred", "Turn", "MaxUnavailable"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cluster := underMCO(c.change)
			view := cluster.View(cluster.Pools[0].Name)
			require.NotNil(t, view)
			plan := view.Plan(time.Now())
			var got []string
			for _, v := range plan.Verdicts {
				got = append(got, v.Reason)
			}
			assert.Equal(t, c.want, got, "%+v", plan.Verdicts)
			assert.Contains(t, plan.Verdicts[2].Message, c.says)
		})
	}
}

// MCO sends the oldest node first, however the nodes are listed, and the verdicts are in the order of the names.
func TestOrderUnderMCO(t *testing.T) {
	cluster := underMCO(func(c *rollout.Cluster) {
		slices.Reverse(c.Nodes)
		record(c.Nodes[2], "rendered-worker-1", "rendered-worker-0", "Degraded", "no space")
	})
	plan := cluster.View("worker").Plan(time.Now())
	var places []int
	for _, v := range plan.Verdicts {
		places = append(places, v.Position)
	}
	assert.Equal(t, []string{"n0"}, plan.Next)
	assert.Equal(t, []int{1, 2, 3}, places)
	assert.Equal(t, 1, plan.Counts.Degraded)
	v, found := plan.Verdict("n2")
	assert.True(t, found)
	assert.Equal(t, "n2", v.Node)
}

// MCO does not look at the form of an image: a node that says it has what it should have is done, for the counts too.
func TestShortDigestUnderMCO(t *testing.T) {
	cluster := underMCO(func(c *rollout.Cluster) {
		for i, n := range c.Nodes {
			record(n, "rendered-worker-2", "rendered-worker-2", "Done", "")
			if i == 0 {
				n.Annotations[manifests.AnnotationCurrentImage] = "r.example.com/os@sha256:abc"
				n.Annotations[manifests.AnnotationDesiredImage] = "r.example.com/os@sha256:abc"
			}
		}
	})
	counts := cluster.View("worker").Plan(time.Now()).Counts
	assert.Equal(t, rollout.Counts{Nodes: 3, Updated: 2, Ready: 2}, counts, "its image is not the pool's, and it is there")
}
