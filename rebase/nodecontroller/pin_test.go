package nodecontroller_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

func pinnedSet(name string) *mcfgv1.PinnedImageSet {
	const digest = "1111111111111111111111111111111111111111111111111111111111111111"
	return &mcfgv1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.PinnedImageSetSpec{
		PinnedImages: []mcfgv1.PinnedImageRef{{Name: "r.example.com/apps/a@sha256:" + digest}}}}
}

func refs(names ...string) []mcfgv1.PinnedImageSetRef {
	var out []mcfgv1.PinnedImageSetRef
	for _, n := range names {
		out = append(out, mcfgv1.PinnedImageSetRef{Name: n})
	}
	return out
}

// TestNodesAreToldTheirPinnedImages holds which sets the nodes of a custom pool get: its own, and behind them the
// worker's on nodes that are workers, too.
func TestNodesAreToldTheirPinnedImages(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	at := target.Target{Config: "rendered-" + f.pool + "-1"}
	f.node("alone", at)
	f.node("both", at)
	var n corev1.Node
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("both")}, &n))
	n.Labels["node-role.kubernetes.io/worker"] = ""
	require.NoError(t, f.env.Client.Update(t.Context(), &n))
	f.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		PinnedImageSets: refs("pin-shared", "pin-workers")}})
	f.look()
	assert.Empty(t, f.annotation("alone", manifests.AnnotationPinnedImageSets))
	assert.Equal(t, "pin-shared=0,pin-workers=0", f.annotation("both", manifests.AnnotationPinnedImageSets),
		"sets that are not there are named: the node reports them")

	f.create(pinnedSet("pin-shared"))
	f.create(pinnedSet("pin-own"))
	var pool mcfgv1.MachineConfigPool
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.pool}, &pool))
	pool.Spec.PinnedImageSets = refs("pin-own", "pin-shared")
	require.NoError(t, f.env.Client.Update(t.Context(), &pool))
	f.look()
	assert.Equal(t, "pin-own=1,pin-shared=1", f.annotation("alone", manifests.AnnotationPinnedImageSets))
	assert.Equal(t, "pin-own=1,pin-shared=1,pin-workers=0", f.annotation("both", manifests.AnnotationPinnedImageSets))

	f.annotate("alone", manifests.AnnotationPinnedImageSetsError, "no room for it")
	f.look()
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.pool}, &pool))
	says := map[mcfgv1.MachineConfigPoolConditionType]string{}
	for _, c := range pool.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			says[c.Type] = c.Message
		}
	}
	assert.Equal(t, "node "+f.name("alone")+": no room for it", says[mcfgv1.MachineConfigPoolPinnedImageSetsDegraded])
	assert.Contains(t, says[mcfgv1.MachineConfigPoolDegraded], "no room for it")
}
