package nodecontroller_test

import (
	"context"
	"errors"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

func TestRollsOneAfterTheOther(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", rollout.Target{Config: first})
	f.node("b", rollout.Target{Config: first})
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
	assert.Equal(t, first, f.object().Status.Configuration.Name)

	f.render(second)
	f.look()
	assert.Equal(t, second, f.record("a").DesiredConfig)
	assert.Equal(t, first, f.record("b").DesiredConfig)
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdating).Status)
	assert.Equal(t, first, f.object().Status.Configuration.Name, "the pool's configuration moves when all nodes have it")
	before := f.object().ResourceVersion
	f.restart()
	f.look()
	assert.Equal(t, first, f.record("b").DesiredConfig, "a restarted controller goes on where the other was")
	f.agent("a", func(r *nodestate.Record) { r.State = nodestate.StateWorking })
	f.look()
	assert.Equal(t, first, f.record("b").DesiredConfig)
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, second, f.record("b").DesiredConfig)
	f.agent("b", arrive)
	f.look()
	p := f.object()
	assert.NotEqual(t, before, p.ResourceVersion)
	assert.Equal(t, second, p.Status.Configuration.Name)
	assert.Equal(t, [5]int32{2, 2, 2, 0, 0}, [5]int32{p.Status.MachineCount, p.Status.UpdatedMachineCount, p.Status.ReadyMachineCount, p.Status.UnavailableMachineCount, p.Status.DegradedMachineCount})
	assert.Equal(t, p.Generation, p.Status.ObservedGeneration)
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)

	still := f.object().ResourceVersion
	f.look()
	assert.Equal(t, still, f.object().ResourceVersion, "nothing to say, nothing written")
	var mcn mcfgv1.MachineConfigNode
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("b")}, &mcn))
	assert.Equal(t, second, mcn.Spec.ConfigVersion.Desired)
	assert.Equal(t, f.pool, mcn.Spec.Pool.Name)
}

func TestLayeredPoolGetsConfigAndImageTogether(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", rollout.Target{Config: first})
	f.look()
	f.layer("one", first, image(1))
	f.look()
	r := f.record("a")
	assert.Equal(t, image(1), r.DesiredImage)
	assert.Equal(t, first, r.DesiredConfig, "the image stands beside the config, never instead of it")
	var n corev1.Node
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("a")}, &n))
	assert.Equal(t, image(1), n.Annotations[manifests.AnnotationDesiredOSImage], "the alias says the same")
	f.agent("a", arrive)

	f.render(second)
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig, "the new config waits for its image")
	updating := f.condition(mcfgv1.MachineConfigPoolUpdating)
	assert.Equal(t, corev1.ConditionTrue, updating.Status)
	assert.Equal(t, "ImageOutstanding", updating.Reason)
	assert.Contains(t, updating.Message, "is not built yet")
	assert.Equal(t, corev1.ConditionFalse, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
	f.layer("two", second, image(2))
	f.look()
	assert.Equal(t, second, f.record("a").DesiredConfig)
	assert.Equal(t, image(2), f.record("a").DesiredImage)
	f.agent("a", arrive)

	var m mcfgv1.MachineOSConfig
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.pool}, &m))
	require.NoError(t, f.env.Client.Delete(t.Context(), &m))
	f.look()
	assert.Empty(t, f.record("a").DesiredImage, "opted out: the node goes back to the stock OS")
	assert.Equal(t, second, f.record("a").DesiredConfig)
	assert.False(t, f.record("a").Converged())
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
}

func TestImageOnlyFailureIsRetargeted(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first := "rendered-" + f.pool + "-1"
	f.node("a", rollout.Target{Config: first, Image: image(1)})
	f.node("b", rollout.Target{Config: first, Image: image(1)})
	f.layer("bad", first, image(2))
	f.look()
	require.Equal(t, image(2), f.record("a").DesiredImage)
	f.agent("a", fail("the image does not boot"))
	f.look()
	assert.Equal(t, image(1), f.record("b").DesiredImage, "the next one waits")
	degraded := f.condition(mcfgv1.MachineConfigPoolDegraded)
	assert.Equal(t, corev1.ConditionTrue, degraded.Status)
	assert.Contains(t, degraded.Message, "the image does not boot")
	f.layer("good", first, image(3))
	f.look()
	assert.Equal(t, image(3), f.record("a").DesiredImage, "the corrected image reaches the failed node first")
	assert.Equal(t, image(1), f.record("b").DesiredImage)
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, image(3), f.record("b").DesiredImage)
	assert.Equal(t, corev1.ConditionFalse, f.condition(mcfgv1.MachineConfigPoolDegraded).Status)
}

func TestPausedSaysPaused(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	f.node("a", rollout.Target{Config: "rendered-" + f.pool + "-1"})
	f.render("rendered-"+f.pool+"-2", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	f.look()
	assert.Equal(t, "rendered-"+f.pool+"-1", f.record("a").DesiredConfig)
	updating := f.condition(mcfgv1.MachineConfigPoolUpdating)
	assert.Equal(t, corev1.ConditionFalse, updating.Status)
	assert.Equal(t, "Paused", updating.Reason)
}

func TestWhatTheAdminMustMend(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first := "rendered-" + f.pool + "-1"
	f.node("a", rollout.Target{Config: first})
	f.render(first, func(p *mcfgv1.MachineConfigPool) {
		p.Annotations = map[string]string{manifests.AnnotationMaintenanceWindows: "sometimes"}
	})
	f.look()
	f.render("rendered-" + f.pool + "-2")
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig, "a window that cannot be read does not mean always")
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Message, "sometimes")
	many := intstr.FromString("many")
	f.render("rendered-"+f.pool+"-2", func(p *mcfgv1.MachineConfigPool) { p.Annotations, p.Spec.MaxUnavailable = nil, &many })
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Message, "maxUnavailable")
}

// checks is a Preflight that says what it is told to say.
type checks struct {
	err   error
	asked int
}

func (c *checks) Check(context.Context, *mcfgv1.MachineConfigPool, rollout.Target) error {
	c.asked++
	return c.err
}

func TestImageIsCheckedBeforeTheFirstNode(t *testing.T) {
	check := &checks{err: errors.New("the nodes may not pull it")}
	f := newFixture(t, nodecontroller.Options{Preflight: check})
	first := "rendered-" + f.pool + "-1"
	f.node("a", rollout.Target{Config: first})
	f.node("b", rollout.Target{Config: first})
	f.layer("one", first, image(1))
	assert.Positive(t, f.look().RequeueAfter)
	assert.Empty(t, f.record("a").DesiredImage)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Message, "may not pull")
	check.err = nil
	f.look()
	assert.Equal(t, image(1), f.record("a").DesiredImage)
	asked := check.asked
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, image(1), f.record("b").DesiredImage)
	assert.Equal(t, asked, check.asked, "one look per rollout is enough")
}

func TestStatusKeepsOthersConditions(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	p := f.object()
	p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolRenderDegraded, Status: corev1.ConditionTrue, Reason: "X", Message: "cannot render", LastTransitionTime: p.CreationTimestamp}}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), p))
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolRenderDegraded).Status)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolDegraded).Message, "cannot render")
}
