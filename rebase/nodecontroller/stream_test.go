package nodecontroller_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

func withOSImage(name, image string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigSpec{
		OSImageURL: image, Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"}}`)}}}
}

func streamOf(name string, serial int) mcfgv1.OSImageStreamSet {
	return mcfgv1.OSImageStreamSet{Name: name, OSImage: mcfgv1.ImageDigestFormat(image(serial)),
		OSExtensionsImage: mcfgv1.ImageDigestFormat(image(serial + 10))}
}

// TestPoolSaysItsStream holds the stream in a pool's status: it is there while all nodes run the stream's image.
func TestPoolSaysItsStream(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	stream := func() string { return f.object().Status.OSImageStream.Name }
	first, second, third := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2", "rendered-"+f.pool+"-3"
	f.node("a", target.Target{Config: first})
	f.look()
	assert.Empty(t, stream(), "there is no OSImageStream")

	streams := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: render.OSImageStreamName},
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-9"}}
	f.create(streams)
	streams.Status = mcfgv1.OSImageStreamStatus{DefaultStream: "rhel-9", AvailableStreams: []mcfgv1.OSImageStreamSet{
		streamOf("rhel-9", 1), streamOf("rhel-10", 2)}}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), streams))
	f.create(withOSImage(first, image(1)))
	f.create(withOSImage(second, image(2)))
	f.create(withOSImage(third, image(2)))
	f.create(withOSImage("50-"+f.pool, ""))
	f.create(withOSImage("60-"+f.pool, image(2)))
	from := func(name string) func(*mcfgv1.MachineConfigPool) {
		return func(p *mcfgv1.MachineConfigPool) {
			p.Spec.Configuration.Source = []corev1.ObjectReference{{Name: name}}
		}
	}
	f.render(first, from("50-"+f.pool))
	f.look()
	assert.Equal(t, "rhel-9", stream())

	f.render(second, from("50-"+f.pool))
	f.look()
	assert.Empty(t, stream(), "a node is on its way")
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, "rhel-10", stream())

	f.agent("a", fail("disk full"))
	f.look()
	assert.Empty(t, stream(), "the pool is degraded")
	f.agent("a", arrive)

	f.render(third, from("60-"+f.pool))
	f.look()
	f.agent("a", arrive)
	f.look()
	require.Equal(t, third, f.object().Status.Configuration.Name)
	assert.Empty(t, stream(), "a MachineConfig of the user's names the image")
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(streams), streams))
}

// TestPoolCountsNodesThatHavePinned holds the counts of nodes that have pinned their images.
func TestPoolCountsNodesThatHavePinned(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	for _, name := range []string{"a", "b"} {
		f.node(name, target.Target{Config: "rendered-" + f.pool + "-1"})
	}
	f.look() // makes the records
	for name, has := range map[string]int32{"a": 1, "b": 2} {
		var record mcfgv1.MachineConfigNode
		require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name(name)}, &record))
		record.Status.PinnedImageSets = []mcfgv1.MachineConfigNodeStatusPinnedImageSet{{Name: "pin-counted",
			DesiredGeneration: 2, CurrentGeneration: has}}
		record.Status.Conditions = []metav1.Condition{{Type: string(mcfgv1.MachineConfigNodeUpdated),
			Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.Now()}}
		require.NoError(t, f.env.Client.Status().Update(t.Context(), &record))
	}
	f.look()
	got := f.object().Status.PoolSynchronizersStatus
	require.Len(t, got, 1)
	assert.Equal(t, []int64{2, 1}, []int64{got[0].MachineCount, got[0].UpdatedMachineCount})
}
