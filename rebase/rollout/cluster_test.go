package rollout_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

const (
	worldConfig = "rendered-worker-2"
	worldImage  = mcfgv1.ImageDigestFormat("r.example.com/os/worker@sha256:" +
		"2222222222222222222222222222222222222222222222222222222222222222")
)

// layered is a fleet whose pool has an image, and the build that made it.
func layered() (*rollout.Cluster, *mcfgv1.MachineOSConfig, *mcfgv1.MachineOSBuild) {
	c := fleetOf(1)
	c.Configs = []mcfgv1.MachineOSConfig{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	c.Builds = []mcfgv1.MachineOSBuild{{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "made",
			Labels: map[string]string{manifests.LabelRenderedMachineConfig: worldConfig}}}}
	mosc, build := &c.Configs[0], &c.Builds[1]
	mosc.Spec.MachineConfigPool.Name = "worker"
	mosc.Status.CurrentImagePullSpec = worldImage
	mosc.Status.MachineOSBuild = &mcfgv1.ObjectReference{Name: "made"}
	build.Status.DigestedImagePushSpec = worldImage
	build.Status.Conditions = []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded),
		Status: metav1.ConditionTrue}}
	return c, mosc, build
}

// An image is delivered when the build that the pool names has made it for just this config.
func TestWhatAPoolsImageWaitsFor(t *testing.T) {
	cases := []struct {
		name    string
		change  func(*mcfgv1.MachineOSConfig, *mcfgv1.MachineOSBuild)
		hold    string
		layered bool
	}{
		{"nothing", func(*mcfgv1.MachineOSConfig, *mcfgv1.MachineOSBuild) {}, "", true},
		{"its first image", func(m *mcfgv1.MachineOSConfig, _ *mcfgv1.MachineOSBuild) { m.Status.CurrentImagePullSpec = "" },
			"has not been built yet", true},
		{"its build", func(m *mcfgv1.MachineOSConfig, _ *mcfgv1.MachineOSBuild) { m.Status.MachineOSBuild = nil },
			"has not been built yet", true},
		{"a build that is gone", func(_ *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild) { b.Name = "renamed" }, "is gone",
			true},
		{"a build that goes on", func(_ *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild) { b.Status.Conditions = nil },
			"has not brought", true},
		{"a build of another image", func(_ *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild) {
			b.Status.DigestedImagePushSpec = "r.example.com/os/worker@sha256:other"
		}, "has not brought", true},
		{"a build for another config", func(_ *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild) { b.Labels = nil },
			"is not built yet", true},
		{"nothing: it is opted out", func(m *mcfgv1.MachineOSConfig, _ *mcfgv1.MachineOSBuild) {
			m.DeletionTimestamp = &metav1.Time{Time: now}
		}, "", false},
		{"nothing: another pool is opted in", func(m *mcfgv1.MachineOSConfig, _ *mcfgv1.MachineOSBuild) {
			m.Spec.MachineConfigPool.Name = "gpu"
		}, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cluster, mosc, build := layered()
			c.change(mosc, build)
			view := cluster.View("worker")
			assert.Equal(t, c.layered, view.Layered)
			assert.Equal(t, c.hold != "", view.Building)
			assert.Contains(t, view.Pool.Hold, c.hold)
			assert.Equal(t, c.hold == "", view.Pool.Hold == "")
			assert.False(t, view.PreBuilt)
		})
	}
	cluster, _, build := layered()
	build.Labels[manifests.AnnotationPreBuiltImage] = "true"
	assert.True(t, cluster.View("worker").PreBuilt)
}

// A label's value has at most 63 characters, and the name of a rendered config has more where its pool's is long.
func TestImageOfAPoolWithALongName(t *testing.T) {
	const long = "rendered-workers-with-graphics-cards-0123456789abcdef0123456789abcdef"
	cluster, _, build := layered()
	cluster.Pools[0].Spec.Configuration.Name = long
	build.Labels[manifests.LabelRenderedMachineConfig] = manifests.LabelValue(long)
	assert.Less(t, len(manifests.LabelValue(long)), len(long))
	view := cluster.View("worker")
	assert.Empty(t, view.Pool.Hold)
	assert.Equal(t, target.Target{Config: long, Image: string(worldImage)}, view.Pool.Target)
}

// Only a refusal of just this target's image counts.
func TestRefusedImage(t *testing.T) {
	at := target.Target{Config: worldConfig, Image: string(worldImage)}
	says := at.String() + ": has no kernel"
	condition := func(kind mcfgv1.MachineConfigPoolConditionType, status corev1.ConditionStatus,
		message string) *rollout.PoolView {
		c, _, _ := layered()
		c.Pools[0].Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: kind, Status: status, Message: message}}
		return c.View("worker")
	}
	const other = "rendered-worker-1: has no kernel"
	assert.Equal(t, says, condition(manifests.ConditionImageAccepted, corev1.ConditionFalse, says).RefusedImage())
	for name, view := range map[string]*rollout.PoolView{
		"accepted":          condition(manifests.ConditionImageAccepted, corev1.ConditionTrue, says),
		"another condition": condition(mcfgv1.MachineConfigPoolUpdated, corev1.ConditionFalse, says),
		"another target":    condition(manifests.ConditionImageAccepted, corev1.ConditionFalse, other),
	} {
		assert.Empty(t, view.RefusedImage(), name)
	}
	opted := condition(manifests.ConditionImageAccepted, corev1.ConditionFalse, says)
	opted.Layered = false
	assert.Empty(t, opted.RefusedImage(), "without an image of its own")
}

// A rollout takes the median of what nodes needed for each level, in turns of as many nodes as may go at once.
func TestEstimate(t *testing.T) {
	c := fleetOf(3)
	for i, seconds := range []string{"60", "600", "120"} {
		c.Nodes[i].Annotations[manifests.AnnotationUpdateTimes] = `{"seconds":{"Reboot":` + seconds + `,"Drain":10}}`
	}
	plan := disruption.PoolPlan{Transitions: []disruption.Transition{{Nodes: 4, Level: disruption.LevelReboot},
		{Nodes: 2, Level: disruption.LevelDrain}}}
	assert.Equal(t, 500*time.Second, c.Estimate(plan, 0))
	assert.Equal(t, 250*time.Second, c.Estimate(plan, 2))
	assert.Zero(t, c.Estimate(disruption.PoolPlan{}, 1))
	plan.Transitions[1].Level = disruption.LevelReload
	assert.Zero(t, c.Estimate(plan, 1), "nobody knows how long that takes")
}

// A node that has not reported has no state.
func TestNodeStates(t *testing.T) {
	c := fleetOf(2)
	delete(c.Nodes[1].Annotations, manifests.AnnotationCurrentConfig)
	states := c.View("worker").NodeStates()
	require.Len(t, states, 1)
	assert.Equal(t, "rendered-worker-1", states["node-0000"].Config)
}
