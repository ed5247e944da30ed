package nodecontroller_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

func TestABadTargetHaltsBeforeItTakesThePool(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, bad, good := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2", "rendered-"+f.pool+"-3"
	names := []string{"a", "b", "c", "d", "e"}
	for _, n := range names {
		f.node(n, target.Target{Config: first})
	}
	f.look()
	two := intstr.FromInt32(2)
	f.render(bad, func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = &two })
	f.look()
	require.Equal(t, bad, f.record("b").DesiredConfig)
	f.agent("a", fail("the service does not start"))
	f.agent("b", fail("the service does not start"))
	for range 3 {
		f.restart() // what was halted stays so
		f.look()
	}
	for _, n := range names[2:] {
		assert.Equal(t, first, f.record(n).DesiredConfig, n)
	}
	updating := f.condition(mcfgv1.MachineConfigPoolUpdating)
	assert.Equal(t, corev1.ConditionTrue, updating.Status, "nothing moves, and nodes are outstanding")
	assert.Contains(t, updating.Message, "halts")
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Status)
	assert.Equal(t, int32(2), f.object().Status.DegradedMachineCount)

	f.render(good)
	f.look()
	assert.Equal(t, good, f.record("a").DesiredConfig)
	assert.Equal(t, first, f.record("c").DesiredConfig, "the failed ones go first, and take the places")
	f.agent("a", arrive)
	f.look()
	f.agent("b", arrive)
	f.look()
	assert.Equal(t, good, f.record("c").DesiredConfig)
	assert.Equal(t, corev1.ConditionFalse, f.condition(mcfgv1.MachineConfigPoolDegraded).Status)
}

func TestOptingOutIsReversibleInTheMiddle(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	config := "rendered-" + f.pool + "-1"
	f.layer("one", config, image(1))
	for _, n := range []string{"a", "b"} {
		f.node(n, target.Target{Config: config, Image: image(1)})
	}
	f.look()
	before := f.everything("a", "b")
	mosc := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool}}
	require.NoError(t, f.env.Client.Delete(t.Context(), mosc))
	f.look()
	require.Empty(t, f.record("a").DesiredImage)
	assert.Equal(t, image(1), f.record("b").DesiredImage)
	f.layer("again", config, image(1)) // the same content has the same image
	f.look()
	assert.Equal(t, image(1), f.record("b").DesiredImage, "b is not touched")
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, image(1), f.record("a").DesiredImage)
	assert.Equal(t, image(1), f.record("b").DesiredImage)
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
	assert.Equal(t, before, f.everything("a", "b"), "as if nothing had been")
}

func TestOptingInAndOutLeavesNothing(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Preflight: &checks{}})
	config := "rendered-" + f.pool + "-1"
	for _, n := range []string{"a", "b", "c"} {
		f.node(n, target.Target{Config: config})
	}
	f.look()
	before := f.everything("a", "b", "c")
	f.layer("one", config, image(1))
	for _, n := range []string{"a", "b", "c"} {
		f.look()
		f.agent(n, arrive)
		f.look()
		f.look()
	}
	require.Equal(t, image(1), f.record("c").CurrentImage)
	require.NoError(t, f.env.Client.Delete(t.Context(),
		&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool}}))
	for _, n := range []string{"a", "b", "c"} {
		f.look()
		require.Empty(t, f.record(n).DesiredImage)
		f.agent(n, arrive)
		f.look()
	}
	f.look()
	assert.Equal(t, before, f.everything("a", "b", "c"))
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
	for _, c := range f.object().Status.Conditions {
		assert.NotEqual(t, manifests.ConditionImageAccepted, string(c.Type), "nothing is said of an image any more")
	}
}

func TestOptingOutForgetsWhatWasFetchedAhead(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Preflight: &checks{}})
	config := "rendered-" + f.pool + "-1"
	for _, n := range []string{"a", "b"} {
		f.node(n, target.Target{Config: config})
	}
	f.look()
	before := f.everything("b")
	f.layer("one", config, image(1))
	f.look()
	f.look()
	require.Equal(t, image(1), f.annotation("b", manifests.AnnotationPrefetch))
	f.annotate("b", manifests.AnnotationPrefetched, image(1))
	require.NoError(t, f.env.Client.Delete(t.Context(),
		&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool}}))
	f.look()
	f.look() // its taint goes after what it has fetched
	assert.Equal(t, before, f.everything("b"), "b was never told, and keeps nothing")
}

// everything is what nodes and their records say.
func (f *fixture) everything(nodes ...string) map[string]any {
	f.Helper()
	out := map[string]any{}
	for _, name := range nodes {
		var n corev1.Node
		var record mcfgv1.MachineConfigNode
		require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(name)}, &n))
		require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(name)}, &record))
		out[name+" annotations"], out[name+" labels"], out[name+" spec"], out[name+" record"] = n.Annotations, n.Labels,
			n.Spec, record.Spec
	}
	return out
}
