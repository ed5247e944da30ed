package nodecontroller_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

// publish does what the policy controller does.
func (f *fixture) publish(to string, ways ...disruption.Transition) {
	f.Helper()
	text, err := disruption.NewPoolPlan(target.Target{Config: to}, ways).Encode()
	require.NoError(f, err)
	p := f.object()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[manifests.AnnotationPlan] = text
	require.NoError(f, f.env.Client.Update(f.Context(), p))
}

func (f *fixture) told(node, config string) *disruption.Promise {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	p, err := disruption.PromiseOf(n.Annotations, config, "")
	require.NoError(f, err)
	return p
}

func TestNothingIsDeliveredBeforeItsEffectIsKnown(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Foreseen: true})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: first})
	f.render(second)
	shown := f.measure()
	unknown := `dayone_rollout_waiting_nodes{pool="` + f.pool + `",reason="EffectUnknown"}`
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolUpdating).Message, "is not known yet")
	assert.Equal(t, 1.0, shown()[unknown], "the alert DayoneForecastUnknown asks for it")
	f.publish(second)
	f.look()
	assert.NotContains(t, shown(), unknown, "the plan is there, and the node's turn comes later")
	assert.Equal(t, first, f.record("a").DesiredConfig, "a node whose way is not in the plan waits for the plan")
	way := disruption.Transition{From: target.Target{Config: first}, Nodes: 1, Hash: "h1", Level: disruption.LevelReload}
	f.publish(second, way)
	f.look()
	assert.Equal(t, second, f.record("a").DesiredConfig)
	require.NotNil(t, f.told("a", second))
	assert.Equal(t, "h1", f.told("a", second).Hash)
	assert.NotEmpty(t, f.told("a", second).Sent)

	way.Hash, way.Level = "h2", disruption.LevelDrain // a policy has changed while the node is on its way
	f.publish(second, way)
	f.look()
	assert.Equal(t, "h2", f.told("a", second).Hash)
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
}

func TestTheGateHoldsWorsePlans(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: first})
	gate := func(level string) func(*mcfgv1.MachineConfigPool) {
		return func(p *mcfgv1.MachineConfigPool) {
			p.Annotations = map[string]string{manifests.AnnotationMaxDisruption: level}
		}
	}
	f.render(second, gate("Reload"))
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig, "a gate does not open for what nobody knows")
	f.publish(second, disruption.Transition{From: target.Target{Config: first}, Nodes: 1, Hash: "h",
		Level: disruption.LevelReboot})
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig)
	message := f.condition(mcfgv1.MachineConfigPoolUpdating).Message
	assert.Contains(t, message, "means Reboot for 1 nodes")
	assert.Contains(t, message, "allows Reload")
	f.render(second, gate("Little"))
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Message, "Little")
	f.render(second, gate("Reboot"))
	f.publish(second, disruption.Transition{From: target.Target{Config: first}, Nodes: 1, Hash: "h",
		Level: disruption.LevelReboot})
	f.look()
	assert.Equal(t, second, f.record("a").DesiredConfig)
	f.agent("a", func(r *nodestate.Record) { arrive(r) })
}

// A target that failed is taken back before its nodes have it: they have the one that it goes back to, and no plan
// speaks of them.
func TestATargetThatIsTakenBackReachesTheNodesThatFailed(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Foreseen: true})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: first})
	f.render(second)
	f.publish(second, disruption.Transition{From: target.Target{Config: first}, Nodes: 1, Hash: "h",
		Level: disruption.LevelReboot})
	f.look()
	require.Equal(t, second, f.record("a").DesiredConfig)
	f.agent("a", fail("the service does not start"))
	f.render(first)
	f.publish(first)
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig)
	assert.Nil(t, f.told("a", first), "what it does to get back is its own to see")
	assert.Empty(t, f.annotation("a", manifests.AnnotationPlan))
}

// A published plan holds few ways, and a node whose way is left out keeps no place that another could have.
func TestANodeWithoutAWayLetsOthersGo(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Foreseen: true})
	odd, first, second := "rendered-"+f.pool+"-0", "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: odd})
	f.node("b", target.Target{Config: first})
	f.render(second)
	way := disruption.Transition{From: target.Target{Config: first}, Nodes: 1, Hash: "h", Level: disruption.LevelReload}
	f.publish(second, way)
	f.look()
	assert.Equal(t, odd, f.record("a").DesiredConfig)
	assert.Equal(t, second, f.record("b").DesiredConfig)
	f.agent("b", arrive)
	f.look()
	updating := f.condition(mcfgv1.MachineConfigPoolUpdating)
	assert.Contains(t, updating.Message, "node "+f.name("a"))
	assert.Contains(t, updating.Message, "the transition from "+odd+" is not in the pool's plan")
	way.From.Config = odd
	f.publish(second, way)
	f.look()
	assert.Equal(t, second, f.record("a").DesiredConfig)
}
