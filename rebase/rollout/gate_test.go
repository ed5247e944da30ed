package rollout_test

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// A pool's gate holds a target whose effect is worse than it allows, or is not known although it must be.
func TestGate(t *testing.T) {
	plan := func(config string, level disruption.Level) string {
		p := disruption.NewPoolPlan(target.Target{Config: config}, []disruption.Transition{{Nodes: 3, Level: level,
			From: target.Target{Config: "rendered-worker-1"}}})
		text, err := p.Encode()
		require.NoError(t, err)
		return text
	}
	const to = "rendered-worker-2"
	for _, c := range []struct {
		name       string
		gate, plan string
		required   bool
		target     string
		hold       string
		effects    bool
	}{
		{name: "no gate, nothing known", target: to},
		{name: "nothing known, and it must be", target: to, required: true, hold: "is not known yet"},
		{name: "nothing known behind a gate", target: to, gate: "Drain", hold: "is not known yet"},
		{name: "no target behind a gate", gate: "Drain", required: true},
		{name: "known", target: to, plan: plan(to, disruption.LevelReboot), effects: true},
		{name: "as much as the gate allows", target: to, gate: "Reboot", plan: plan(to, disruption.LevelReboot),
			effects: true},
		{name: "more than the gate allows", target: to, gate: "Drain", plan: plan(to, disruption.LevelReboot), effects: true,
			hold: to + " means Reboot for 3 nodes"},
		{name: "known for another target", target: to, required: true, plan: plan("rendered-worker-3", disruption.LevelQuiet),
			hold: "is not known yet"},
		{name: "a gate that is none", target: to, gate: "Perhaps", hold: manifests.AnnotationMaxDisruption},
		{name: "a plan that is none", target: to, plan: "{", required: true, hold: "is not known yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := fleetOf(3)
			cluster.Foreseen = c.required
			pool := &cluster.Pools[0]
			pool.Spec.Configuration.Name, pool.Annotations = c.target, map[string]string{}
			for key, value := range map[string]string{manifests.AnnotationMaxDisruption: c.gate,
				manifests.AnnotationPlan: c.plan} {
				if value != "" {
					pool.Annotations[key] = value
				}
			}
			view := cluster.View("worker")
			assert.Equal(t, c.effects, view.Effects != nil)
			assert.Contains(t, view.Pool.Hold, c.hold)
			assert.Equal(t, c.hold == "", view.Pool.Hold == "", view.Pool.Hold)
		})
	}
}

// MCO builds for what the node's kernel and packages are made of, and for nothing else.
func TestMakesImage(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*mcfgv1.MachineConfigSpec)
		want   bool
	}{
		{"nothing", func(*mcfgv1.MachineConfigSpec) {}, false},
		{"FIPS", func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true }, false},
		{"image", func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "b" }, true},
		{"kernel", func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "realtime" }, true},
		{"extensions", func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard"} }, true},
		{"an empty list", func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{} }, true},
		{"kernel arguments", func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"a"} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := &mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{OSImageURL: "a"}}
			is := was.DeepCopy()
			c.change(&is.Spec)
			assert.Equal(t, c.want, rollout.MakesImage(was, is))
		})
	}
}

// MCO rounds a percentage down, and takes nothing for one.
func TestLimitOfMCO(t *testing.T) {
	for _, c := range []struct {
		name string
		said intstr.IntOrString
		want int
	}{
		{"a number", intstr.FromInt32(2), 2}, {"none", intstr.FromInt32(0), 1},
		{"rounded down to none", intstr.FromString("10%"), 1}, {"rounded down", intstr.FromString("99%"), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := underMCO(func(c2 *rollout.Cluster) { c2.Pools[0].Spec.MaxUnavailable = &c.said })
			assert.Equal(t, c.want, cluster.View("worker").Plan(time.Now()).MaxUnavailable)
		})
	}
}

// A node without a record is silent; one of whose record a half is there is not done.
func TestRecordsUnderMCO(t *testing.T) {
	const old, is = "rendered-worker-1", "rendered-worker-2"
	for _, c := range []struct {
		name                   string
		current, desired, does string
		updated                bool
	}{
		{"done", is, is, "Done", true}, {"at work", is, is, "Working", false}, {"on its way", old, is, "Done", false},
		{"no present config", "", is, "Done", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := underMCO(func(k *rollout.Cluster) { record(k.Nodes[0], c.current, c.desired, c.does, "") })
			counts := cluster.View("worker").Plan(time.Now()).Counts
			assert.Equal(t, c.updated, counts.Updated == 1, "%+v", counts)
		})
	}
	silent := underMCO(func(k *rollout.Cluster) { record(k.Nodes[0], "", "", "", "") })
	half := underMCO(func(k *rollout.Cluster) { record(k.Nodes[0], "", is, "", "") })
	assert.NotEqual(t, silent.View("worker").Plan(time.Now()).Verdicts[0].Reason,
		half.View("worker").Plan(time.Now()).Verdicts[0].Reason)
}

func TestPrefetchLimit(t *testing.T) {
	p := pool("worker", nil)
	for _, c := range []struct {
		name, value string
		want        int
		fails       bool
	}{{"some", "3", 3, false}, {"none at all", "0", -1, false}, {"no number", "many", 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			p.Annotations = map[string]string{manifests.AnnotationPrefetchLimit: c.value}
			got, err := rollout.PoolOf(p)
			if c.fails {
				require.ErrorContains(t, err, `"many" is no number from 0 to 65535`)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got.Prefetch)
		})
	}
}

func TestAnyLayered(t *testing.T) {
	c := fleetOf(2)
	for _, n := range c.Nodes {
		delete(n.Annotations, manifests.AnnotationCurrentImage)
	}
	assert.False(t, c.View("worker").AnyLayered())
	c = fleetOf(2)
	delete(c.Nodes[0].Annotations, manifests.AnnotationCurrentImage)
	assert.True(t, c.View("worker").AnyLayered())
}

// What is updated and away is not ready, for MCO as for dayone.
func TestReadyCounts(t *testing.T) {
	const is = "rendered-worker-2"
	for _, actor := range []disruption.Actor{disruption.ActorMCO, disruption.ActorDayone} {
		for name, away := range map[string]func(n *corev1.Node){
			"cordoned":  func(n *corev1.Node) { n.Spec.Unschedulable = true },
			"not ready": func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
		} {
			cluster := underMCO(func(c *rollout.Cluster) {
				c.Actor = actor
				for _, n := range c.Nodes {
					record(n, is, is, "Done", "")
				}
				away(c.Nodes[1])
			})
			counts := cluster.View("worker").Plan(time.Now()).Counts
			assert.Equal(t, []int{3, 2}, []int{counts.Updated, counts.Ready}, "%s, actor %q", name, actor)
		}
	}
}

// MCO passes over a cordoned node, and what becomes of one depends on what it was doing.
func TestCordonedUnderMCO(t *testing.T) {
	const old, third = "rendered-worker-1", "rendered-worker-3"
	for _, c := range []struct{ name, current, desired, does, reason string }{
		{"idle", old, old, "Done", "Cordoned"},
		{"gave up on an earlier target", old, third, "Degraded", "NodeDegraded"},
		{"on its way to an earlier target", old, third, "Working", "EarlierTarget"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := underMCO(func(k *rollout.Cluster) {
				record(k.Nodes[0], c.current, c.desired, c.does, "no space")
				k.Nodes[0].Spec.Unschedulable = true
			})
			assert.Equal(t, c.reason, cluster.View("worker").Plan(time.Now()).Verdicts[0].Reason)
		})
	}
}

// A node that a custom pool selects, too, stays the control plane's, and the pool's view says so.
func TestContestedMasters(t *testing.T) {
	role := func(r string) map[string]string { return map[string]string{"node-role.kubernetes.io/" + r: ""} }
	contested := func(roles ...string) bool {
		c := &rollout.Cluster{Pools: []mcfgv1.MachineConfigPool{*pool("master", role("master")),
			*pool("worker", role("worker")), *pool("infra", role("infra")), *pool("gpu", role("gpu"))}}
		n := updated("a", "rendered-master-1", roles...)
		n.Labels = map[string]string{}
		for _, r := range roles {
			n.Labels["node-role.kubernetes.io/"+r] = ""
		}
		c.Nodes = append(c.Nodes, n)
		return c.View("master").Contested["a"]
	}
	assert.False(t, contested("master"))
	assert.False(t, contested("master", "worker"))
	assert.True(t, contested("master", "infra"))
	assert.True(t, contested("master", "worker", "infra"))
	assert.False(t, contested("master", "infra", "gpu"), "of two custom pools none could have it")
}

func TestTooManyWaves(t *testing.T) {
	_, err := rollout.ParseWaves(strings.Repeat("1,", 200) + "2/5m")
	require.ErrorContains(t, err, "more than")
}

// An image is fetched before its turn when the agent says so of just that image, or that it cannot.
func TestPrefetchEnds(t *testing.T) {
	n := updated("a", "rendered-worker-1")
	n.Annotations[manifests.AnnotationPrefetch] = "r/os@sha256:1"
	assert.False(t, rollout.NodeOf(n).PrefetchEnded)
	n.Annotations[manifests.AnnotationPrefetched] = "r/os@sha256:0"
	assert.False(t, rollout.NodeOf(n).PrefetchEnded)
	n.Annotations[manifests.AnnotationPrefetched] = "r/os@sha256:1"
	assert.True(t, rollout.NodeOf(n).PrefetchEnded)
	delete(n.Annotations, manifests.AnnotationPrefetched)
	n.Annotations[manifests.AnnotationPrefetchError] = "no room"
	assert.True(t, rollout.NodeOf(n).PrefetchEnded)
}

// A pool has its image when nothing is built and the build has made just that.
func TestMissingBuild(t *testing.T) {
	c, mosc, build := layered()
	assert.Nil(t, c.View("worker").Missing(build))
	other := build.DeepCopy()
	other.Status.DigestedImagePushSpec = "r.example.com/os/worker@sha256:other"
	assert.Equal(t, other, c.View("worker").Missing(other))
	mosc.Status.MachineOSBuild = nil
	assert.Equal(t, build, c.View("worker").Missing(build), "it is being built")
}
