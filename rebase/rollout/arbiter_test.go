package rollout_test

import (
	"fmt"
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

// withArbiter is a control plane of two masters and an arbiter, all of which are to have config 2.
func withArbiter(actor disruption.Actor) *rollout.Cluster {
	c := &rollout.Cluster{Actor: actor}
	for i, name := range []string{"m0", "m1", "a0"} {
		role := map[string]string{"m": "master", "a": "arbiter"}[name[:1]]
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(
			time.Unix(int64(i), 0)), Labels: map[string]string{"node-role.kubernetes.io/" + role: ""},
			Annotations: map[string]string{manifests.AnnotationControlPlaneTopology: "HighlyAvailableArbiter"}}}
		record(n, "rendered-"+role+"-1", "rendered-"+role+"-1", "Done", "")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		c.Nodes = append(c.Nodes, n)
	}
	for _, role := range []string{"master", "arbiter"} {
		p := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}}
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + role: ""}}
		p.Spec.Configuration.Name = "rendered-" + role + "-2"
		p.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		c.Pools = append(c.Pools, p)
	}
	return c
}

// arrive lets a node have config 2.
func arrive(n *corev1.Node, role string) {
	record(n, "rendered-"+role+"-2", "rendered-"+role+"-2", "Done", "")
}

// TestTheArbiterUnderMCO compares with what MCO's node controller does.
func TestTheArbiterUnderMCO(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*rollout.Cluster)
		masters string
		arbiter string
		says    string // of the arbiter, or of the last master
	}{
		{"masters first", func(*rollout.Cluster) {}, "[Turn Turn]", "[MastersFirst]", "2 are still to go"},
		{"a master is away", func(c *rollout.Cluster) {
			arrive(c.Nodes[0], "master")
			record(c.Nodes[1], "rendered-master-1", "rendered-master-2", "Working", "")
		}, "[Done Working]", "[MastersFirst]", "1 of them are unavailable or on their way"},
		{"masters are done", func(c *rollout.Cluster) {
			arrive(c.Nodes[0], "master")
			arrive(c.Nodes[1], "master")
		}, "[Done Done]", "[Turn]", "is sent"},
		{"a master failed: MCO does not count it", func(c *rollout.Cluster) {
			arrive(c.Nodes[0], "master")
			record(c.Nodes[1], "rendered-master-1", "rendered-master-2", "Degraded", "no space")
		}, "[Done NodeDegraded]", "[Turn]", "is sent"},
		{"masters are paused", func(c *rollout.Cluster) { c.Pools[0].Spec.Paused = true },
			"[Paused Paused]", "[Turn]", "is sent"},
		{"masters are paused, and one is not ready", func(c *rollout.Cluster) {
			c.Pools[0].Spec.Paused = true
			c.Nodes[1].Status.Conditions[0].Status = corev1.ConditionFalse
		}, "[Paused NotReady]", "[MastersFirst]", "of its nodes these are unavailable: m1"},
		{"the masters' image is not built", func(c *rollout.Cluster) {
			m := mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "master"}}
			m.Spec.MachineConfigPool.Name = "master"
			c.Configs = append(c.Configs, m)
		}, "[ImageOutstanding ImageOutstanding]", "[MastersFirst]", "which waits: the image for rendered-master-2"},
		{"the arbiter is away: no master goes", func(c *rollout.Cluster) {
			record(c.Nodes[2], "rendered-arbiter-1", "rendered-arbiter-2", "Working", "")
		}, "[MaxUnavailable MaxUnavailable]", "[Working]", "on its way"},
		{"another topology: MCO never comes to the arbiter", func(c *rollout.Cluster) {
			for _, n := range c.Nodes {
				n.Annotations[manifests.AnnotationControlPlaneTopology] = "HighlyAvailable"
			}
		}, "[Turn Turn]", "[MastersFirst]", "and here it is HighlyAvailable"},
		{"no pool arbiter", func(c *rollout.Cluster) { c.Pools = c.Pools[:1] }, "[PoolStopped PoolStopped]", "[]",
			"there is no pool arbiter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			world := withArbiter(disruption.ActorMCO)
			c.change(world)
			reasons, last := map[string][]string{}, ""
			for _, pool := range []string{"master", "arbiter"} {
				view := world.View(pool)
				if view == nil {
					continue
				}
				for _, v := range view.Plan(time.Now()).Verdicts {
					reasons[pool] = append(reasons[pool], v.Reason)
					last = v.Message
				}
			}
			assert.Equal(t, c.masters, fmt.Sprint(reasons["master"]))
			assert.Equal(t, c.arbiter, fmt.Sprint(reasons["arbiter"]))
			assert.Contains(t, last, c.says)
		})
	}
}

// TestAnArbiterCountsForTheQuorum lets dayone's own controller send one node of three, the arbiter last.
func TestAnArbiterCountsForTheQuorum(t *testing.T) {
	c := withArbiter("")
	next := func(pool string) []string {
		view := c.View(pool)
		require.NotNil(t, view)
		return view.Plan(time.Now()).Next
	}
	assert.Equal(t, []string{"m0"}, next("master"), "one, although two may be away")
	assert.Empty(t, next("arbiter"))
	arrive(c.Nodes[0], "master")
	assert.Empty(t, next("arbiter"), "m1 goes first, although nobody is away")
	c.Pools[0].Spec.Paused = true
	assert.Equal(t, []string{"a0"}, next("arbiter"), "the masters do not go")
	c.Pools[0].Spec.Paused = false
	record(c.Nodes[2], "rendered-arbiter-1", "rendered-arbiter-2", "Working", "")
	assert.Empty(t, next("master"), "the arbiter is away")
	arrive(c.Nodes[2], "arbiter")
	assert.Equal(t, []string{"m1"}, next("master"))
	record(c.Nodes[2], "rendered-arbiter-1", "rendered-arbiter-1", "Done", "")
	arrive(c.Nodes[1], "master")
	assert.Equal(t, []string{"a0"}, next("arbiter"))
	c.Nodes[0].Spec.Unschedulable = true
	assert.Empty(t, next("arbiter"), "a master is away")
}
