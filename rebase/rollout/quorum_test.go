package rollout_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// TestTheQuorumIsOfNodesNotOfAPoolsName plans two pools that share the control plane, neither of them called master.
func TestTheQuorumIsOfNodesNotOfAPoolsName(t *testing.T) {
	const controlPlane = "node-role.kubernetes.io/control-plane"
	three := intstr.FromInt32(3)
	pool := func(name string) mcfgv1.MachineConfigPool {
		p := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.NodeSelector, p.Spec.MaxUnavailable = &metav1.LabelSelector{MatchLabels: map[string]string{"in": name}}, &three
		p.Spec.Configuration.Name = "rendered-" + name + "-2"
		return p
	}
	node := func(name, pool string, labels ...string) *corev1.Node {
		config := "rendered-" + pool + "-1"
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"in": pool},
			Annotations: map[string]string{
				manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
				manifests.AnnotationState: "Done"}}}
		for _, l := range labels {
			n.Labels[l] = ""
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	c := rollout.Cluster{Pools: []mcfgv1.MachineConfigPool{pool("etcd"), pool("witness"), pool("apps")},
		Nodes: []*corev1.Node{
			node("e1", "etcd", controlPlane), node("e2", "etcd", controlPlane), node("w1", "witness", controlPlane),
			node("a1", "apps"), node("a2", "apps")}}
	next := func(pool string) []string {
		l := c.View(pool)
		require.NotNil(t, l)
		return l.Plan(time.Now()).Next
	}
	assert.Equal(t, []string{"e1"}, next("etcd"), "one, although three may be away")
	assert.Equal(t, []string{"a1", "a2"}, next("apps"))
	view := c.View("etcd")
	for _, v := range view.Plan(time.Now()).Verdicts {
		if v.Reason == "MaxUnavailable" {
			assert.Contains(t, v.Message, "1 nodes of the control plane are unavailable or about to be, and only one may be")
		}
	}
	assert.Contains(t, view.Quorum, "w1")
	assert.Len(t, view.Quorum, 1, "neither its own nodes nor others'")
	c.Nodes[3].Spec.Unschedulable = true
	assert.Equal(t, []string{"e1"}, next("etcd"), "a node that is none of the control plane is away")
	c.Nodes[3].Spec.Unschedulable = false
	c.Nodes[0].Annotations[manifests.AnnotationDesiredConfig] = "rendered-etcd-2"
	assert.Empty(t, next("witness"), "e1 is on its way")
	assert.Empty(t, next("etcd"))
	c.Nodes[0].Annotations[manifests.AnnotationCurrentConfig] = "rendered-etcd-2"
	assert.Equal(t, []string{"w1"}, next("witness"))
	c.Nodes[2].Spec.Unschedulable = true
	assert.Empty(t, next("etcd"), "w1 is cordoned")
	assert.Equal(t, []string{"a1", "a2"}, next("apps"))
	// A node that no agent reports on, as one that no pool has, is judged by its kubelet.
	c.Nodes[2] = node("w1", "nobody", controlPlane)
	c.Nodes[2].Annotations = nil
	assert.Equal(t, []string{"e2"}, next("etcd"))
	c.Nodes[2].Status.Conditions[0].Status = corev1.ConditionUnknown
	assert.Empty(t, next("etcd"))
}
