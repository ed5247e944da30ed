package nodecontroller

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

func TestOnlyNewsOfANodeWakeItsPool(t *testing.T) {
	made := metav1.NewTime(time.Now())
	for _, c := range []struct {
		name   string
		change func(*corev1.Node)
		alike  bool
	}{
		{"nothing", func(*corev1.Node) {}, true},
		{"a heartbeat", func(n *corev1.Node) {
			n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(
				made.Add(time.Minute))
		}, true},
		{"the agent's progress", func(n *corev1.Node) { n.Annotations[manifests.AnnotationAgentProgress] = "2 of 3" },
			true},
		{"somebody else's annotation", func(n *corev1.Node) { n.Annotations["example.com/a"] = "b" }, true},
		{"its images", func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} },
			true},
		{"the agent's state", func(n *corev1.Node) { n.Annotations[manifests.AnnotationState] = "Degraded" }, false},
		{"a record that is not one", func(n *corev1.Node) { n.Annotations[manifests.AnnotationState] = "Dancing" }, false},
		{"the promise", func(n *corev1.Node) { n.Annotations[manifests.AnnotationPlan] = "{}" }, false},
		{"an image that it has fetched", func(n *corev1.Node) {
			n.Annotations[manifests.AnnotationPrefetch], n.Annotations[manifests.AnnotationPrefetched] = "a", "a"
		}, false},
		{"a cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		{"it is not ready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		{"a label", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false},
		{"its kubelet has reported", func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "arm64" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: made,
				Annotations: map[string]string{manifests.AnnotationState: "Done"}}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				LastHeartbeatTime: made}}
			changed := n.DeepCopy()
			c.change(changed)
			assert.Equal(t, c.alike, alike(n, changed))
		})
	}
}

// TestNodesOfTheControlPlaneWakeAllPools: another pool may wait for the place that a node has given up, and the arbiter
// goes after the masters.
func TestNodesOfTheControlPlaneWakeAllPools(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.Install(scheme))
	made := fake.NewClientBuilder().WithScheme(scheme)
	pools := map[string]*mcfgv1.MachineConfigPool{}
	for _, name := range []string{"arbiter", "master", "worker"} {
		pools[name] = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pools[name].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{
			"node-role.kubernetes.io/" + name: ""}}
		made = made.WithObjects(pools[name])
	}
	w := watcher{client: made.Build(), log: report.NoLog()}
	for _, c := range []struct {
		role string
		want []string
	}{
		{"master", []string{"arbiter", "master", "worker"}}, {"arbiter", []string{"arbiter", "master", "worker"}},
		{"worker", []string{"worker"}},
	} {
		t.Run(c.role, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
				Labels: map[string]string{"node-role.kubernetes.io/" + c.role: ""}}}
			cordoned := n.DeepCopy()
			cordoned.Spec.Unschedulable = true
			assert.ElementsMatch(t, c.want, w.ofNode(t.Context(), n, cordoned))
		})
	}
	paused := pools["master"].DeepCopy()
	paused.Spec.Paused, paused.Generation = true, 2
	assert.ElementsMatch(t, []string{"arbiter", "master", "worker"}, w.ofPool(t.Context(), pools["master"], paused))
	assert.Equal(t, []string{"worker"}, w.ofPool(t.Context(), pools["worker"], pools["worker"].DeepCopy()))
}

func TestWhatWasWrittenIsWaitedForInTheCache(t *testing.T) {
	var u unseen
	written := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}
	}
	assert.False(t, u.behind(kindNode, "n", "1"))
	u.note(kindNode, "1", written("2"))
	assert.True(t, u.behind(kindNode, "n", "1"))
	assert.False(t, u.behind(kindRecord, "n", "1"), "another kind")
	assert.False(t, u.behind(kindNode, "n", "3"), "it is there, or what came after it")
	assert.Empty(t, u.writes)
	u.note(kindNode, "1", written("1"))
	assert.False(t, u.behind(kindNode, "n", "1"), "a write that changed nothing is not waited for")
	u.note(kindNode, "1", written("2"))
	u.writes[object{kindNode, "n"}] = write{over: "1", at: time.Now().Add(-unseenLimit)}
	assert.False(t, u.behind(kindNode, "n", "1"), "not for ever")
}
