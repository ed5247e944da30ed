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

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
	"dayone.dev/dayone/registry/peers"
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
	plan.Transitions[0].Reboot = "soft (likely)"
	assert.Equal(t, 500*time.Second, c.Estimate(plan, 0), "no soft reboot has been timed yet")
	soft := fleetOf(1)
	soft.Nodes[0].Annotations[manifests.AnnotationUpdateTimes] = `{"seconds":{"Reboot":60,"SoftReboot":20,"Drain":10}}`
	assert.Equal(t, 100*time.Second, soft.Estimate(plan, 0))
	plan.Transitions[0].Reboot = ""
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

// A wave is watched from the moment when its nodes arrived: the agent's word counts, and the note of the policy
// controller where a clock that is behind puts the arrival before the target was sent.
func TestSinceWhenANodeHasItsTarget(t *testing.T) {
	sent := now.Add(-time.Hour).Format(time.RFC3339)
	promise := func(sent string) string {
		text, err := disruption.Promise{Config: worldConfig, Level: disruption.LevelReboot, Sent: sent}.Encode()
		require.NoError(t, err)
		return text
	}
	note := `{"told":"` + sent + `","seconds":{"Reboot":600}}`
	for _, c := range []struct {
		name           string
		says           time.Time
		promise, times string
		waves          string
		want           time.Time
	}{
		{"the agent's word", now.Add(-time.Minute), "", "", "1 / 15m", now.Add(-time.Minute)},
		{"the agent's word, after the target was sent", now.Add(-time.Minute), promise(sent), note, "1 / 15m",
			now.Add(-time.Minute)},
		{"a clock that is behind", now.Add(-2 * time.Hour), promise(sent), note, "1 / 15m", now.Add(-50 * time.Minute)},
		{"an agent that says nothing", time.Time{}, promise(sent), note, "1 / 15m", now.Add(-50 * time.Minute)},
		{"a note of another transition", now.Add(-2 * time.Hour), promise(sent), `{"told":"before","seconds":{"Reboot":1}}`,
			"1 / 15m", time.Time{}},
		{"a time that is none", now.Add(-2 * time.Hour), promise("noon"), note, "1 / 15m", now.Add(-2 * time.Hour)},
		{"nobody watches", now.Add(-2 * time.Hour), promise(sent), note, "1", now.Add(-2 * time.Hour)},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := fleetOf(1)
			n := cluster.Nodes[0]
			n.Annotations = map[string]string{manifests.AnnotationPlan: c.promise, manifests.AnnotationUpdateTimes: c.times}
			if c.promise == "" {
				delete(n.Annotations, manifests.AnnotationPlan)
			}
			record(n, worldConfig, worldConfig, "Done", "")
			cluster.Pools[0].Annotations = map[string]string{manifests.AnnotationRolloutWaves: c.waves}
			if !c.says.IsZero() {
				cluster.Records[0].Status.Conditions = []metav1.Condition{{Type: string(mcfgv1.MachineConfigNodeUpdated),
					Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.says)}}
			}
			assert.WithinDuration(t, c.want, cluster.View("worker").Nodes[0].UpdatedSince, 0)
			if c.says.IsZero() {
				return
			}
			cluster.Records[0].Status.Conditions[0].Status = metav1.ConditionFalse
			assert.NotEqual(t, c.says, cluster.View("worker").Nodes[0].UpdatedSince, "it has not arrived")
		})
	}
}

// What a node says of its times is never nothing: who adds to it needs a place for it.
func TestTimesOf(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"seconds":null}`, `{"seconds":{"Reboot":"x"}}`} {
		got := rollout.TimesOf(map[string]string{manifests.AnnotationUpdateTimes: text})
		assert.Equal(t, rollout.Times{Seconds: map[string]int64{}}, got, text)
	}
}

// The registries of the control plane are named by its nodes, in their order, with the port of the images' names.
func TestRegistryPeers(t *testing.T) {
	node := func(name, role string, addresses ...corev1.NodeAddress) (n corev1.Node) {
		n.Name, n.Labels = name, map[string]string{"node-role.kubernetes.io/" + role: ""}
		n.Status.Addresses = addresses
		return n
	}
	address := func(kind corev1.NodeAddressType, text string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: kind, Address: text}
	}
	nodes := []corev1.Node{
		node("m1", "master", address(corev1.NodeHostName, "m1"), address(corev1.NodeInternalIP, "10.0.0.2"),
			address(corev1.NodeInternalIP, "10.1.0.2")),
		node("w0", "worker", address(corev1.NodeInternalIP, "10.0.0.9")),
		node("m2", "master", address(corev1.NodeExternalIP, "192.0.2.1")),
		node("m0", "control-plane", address(corev1.NodeInternalIP, "fd00::1"))}
	for _, c := range []struct{ name, registry, m0, m1 string }{
		{"a port", "registry.example.com:5000", "[fd00::1]:5000", "10.0.0.2:5000"},
		{"the default", "registry.example.com", fmt.Sprintf("[fd00::1]:%d", peers.Port),
			fmt.Sprintf("10.0.0.2:%d", peers.Port)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := rollout.RegistryPeers(c.registry, nodes)
			assert.Equal(t, []peers.Peer{{Name: "m0", Address: c.m0}, {Name: "m1", Address: c.m1}}, got.Peers)
		})
	}
}
