package nodecontroller_test

import (
	"context"
	"errors"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

func TestRollsOneAfterTheOther(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: first})
	f.node("b", target.Target{Config: first})
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
	assert.Equal(t, [5]int32{2, 2, 2, 0, 0}, [5]int32{p.Status.MachineCount, p.Status.UpdatedMachineCount,
		p.Status.ReadyMachineCount, p.Status.UnavailableMachineCount, p.Status.DegradedMachineCount})
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
	f.node("a", target.Target{Config: first})
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
	assert.Empty(t, f.record("a").DesiredImage, "opted out: the node goes back to the base OS")
	assert.Equal(t, second, f.record("a").DesiredConfig)
	assert.False(t, f.record("a").Converged())
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
}

func TestOptingOutIsOneReboot(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	layered, stock := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	component := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: manifests.PreBuiltComponentPrefix + f.pool,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSConfig",
			Name: f.pool, UID: "0b0e6c0e-0000-4000-8000-000000000000"}}}}
	f.create(component)
	f.render(layered, func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Configuration.Source = []corev1.ObjectReference{{Name: component.Name}}
	})
	f.node("a", target.Target{Config: layered, Image: image(1)})
	f.look()
	assert.Equal(t, image(1), f.record("a").DesiredImage,
		"the MachineOSConfig is gone, its image still in the rendered config")
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolUpdating).Message, "on its way out")
	require.NoError(t, f.env.Client.Delete(t.Context(), component))
	f.look()
	assert.Equal(t, image(1), f.record("a").DesiredImage, "and it is until the pool is rendered anew")
	f.render(stock)
	f.look()
	assert.Empty(t, f.record("a").DesiredImage)
	assert.Equal(t, stock, f.record("a").DesiredConfig, "both go together")
}

func TestImageOnlyFailureIsRetargeted(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first := "rendered-" + f.pool + "-1"
	f.node("a", target.Target{Config: first, Image: image(1)})
	f.node("b", target.Target{Config: first, Image: image(1)})
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

func TestAWaveIsWatchedBeforeTheNextOne(t *testing.T) {
	clock := time.Now().Truncate(time.Second)
	f := newFixture(t, nodecontroller.Options{Now: func() time.Time { return clock }})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	for _, n := range []string{"a", "b", "c"} {
		f.node(n, target.Target{Config: first})
	}
	f.look()
	clock = clock.Add(time.Hour)
	three := intstr.FromInt32(3)
	f.render(second, func(p *mcfgv1.MachineConfigPool) {
		p.Annotations, p.Spec.MaxUnavailable = map[string]string{manifests.AnnotationRolloutWaves: "1 / 15m"}, &three
	})
	f.look()
	require.Equal(t, second, f.record("a").DesiredConfig)
	clock = clock.Add(10 * time.Minute)
	f.agent("a", arrive)
	assert.Equal(t, 15*time.Minute, f.look().RequeueAfter, "nobody has said yet since when it is there")
	f.arrived("a", clock)
	f.look()
	assert.Equal(t, first, f.record("b").DesiredConfig, "the canary has just arrived")
	clock = clock.Add(14 * time.Minute)
	f.restart()
	assert.Equal(t, time.Minute, f.look().RequeueAfter, "a restarted controller knows since when it is watched")
	assert.Equal(t, first, f.record("b").DesiredConfig)
	clock = clock.Add(time.Minute)
	f.ready("a", false)
	f.look()
	assert.Equal(t, first, f.record("b").DesiredConfig, "a wave that is not well holds the next one")
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolUpdating).Message, "is not ready")
	f.ready("a", true)
	f.look()
	assert.Equal(t, second, f.record("b").DesiredConfig)
	assert.Equal(t, second, f.record("c").DesiredConfig)
}

// A node's clock may be years ahead, or hours behind, and so may this machine's have been: a wave is watched as long as
// is asked, no more and no less.
func TestAWaveIsWatchedWhateverTheClocksSay(t *testing.T) {
	for _, c := range []struct {
		name string
		off  time.Duration
	}{{"years ahead", 3 * 365 * 24 * time.Hour},
		{"hours behind", -3 * time.Hour}} {
		t.Run(c.name, func(t *testing.T) {
			clock := time.Now().Truncate(time.Second)
			f := newFixture(t, nodecontroller.Options{Now: func() time.Time { return clock }})
			first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
			for _, n := range []string{"a", "b"} {
				f.node(n, target.Target{Config: first})
			}
			f.look()
			two := intstr.FromInt32(2)
			f.render(second, func(p *mcfgv1.MachineConfigPool) {
				p.Annotations, p.Spec.MaxUnavailable = map[string]string{manifests.AnnotationRolloutWaves: "1 / 15m"}, &two
			})
			f.look()
			text, err := disruption.Promise{Config: second, Level: disruption.LevelReboot, Sent: clock.UTC().
				Format(time.RFC3339)}.Encode()
			require.NoError(t, err)
			f.annotate("a", manifests.AnnotationPlan, text)
			clock = clock.Add(time.Minute)
			f.arrived("a", clock.Add(c.off))
			assert.Equal(t, 15*time.Minute, f.look().RequeueAfter)
			clock = clock.Add(14 * time.Minute)
			assert.Equal(t, time.Minute, f.look().RequeueAfter)
			assert.Equal(t, first, f.record("b").DesiredConfig)
			clock = clock.Add(time.Minute)
			f.look()
			assert.Equal(t, second, f.record("b").DesiredConfig)
		})
	}
}

func TestPausedSaysPaused(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	f.node("a", target.Target{Config: "rendered-" + f.pool + "-1"})
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
	f.node("a", target.Target{Config: first})
	f.render(first, func(p *mcfgv1.MachineConfigPool) {
		p.Annotations = map[string]string{manifests.AnnotationMaintenanceWindows: "sometimes"}
	})
	f.look()
	f.render("rendered-" + f.pool + "-2")
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig, "a window that cannot be read does not mean always")
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Message, "sometimes")
	many := intstr.FromString("many")
	f.render("rendered-"+f.pool+"-2", func(p *mcfgv1.MachineConfigPool) {
		p.Annotations, p.Spec.MaxUnavailable = nil,
			&many
	})
	f.look()
	assert.Equal(t, first, f.record("a").DesiredConfig)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Message, "maxUnavailable")
}

// checks is a Preflight that says what it is told to say.
type checks struct {
	err   error
	asked int
}

func (c *checks) Check(context.Context, nodecontroller.Question) error {
	c.asked++
	return c.err
}

func TestImageIsCheckedBeforeTheFirstNode(t *testing.T) {
	check := &checks{err: &deploy.Fault{Class: deploy.ClassForbidden, Op: "open image",
		Err: errors.New("the nodes may not pull it")}}
	clock := time.Now()
	f := newFixture(t, nodecontroller.Options{Preflight: check, Now: func() time.Time { return clock }})
	first := "rendered-" + f.pool + "-1"
	f.node("a", target.Target{Config: first})
	f.node("b", target.Target{Config: first})
	f.layer("one", first, image(1))
	assert.Positive(t, f.look().RequeueAfter)
	assert.Empty(t, f.record("a").DesiredImage, "no node is touched")
	accepted := f.condition(manifests.ConditionImageAccepted)
	assert.Equal(t, corev1.ConditionFalse, accepted.Status)
	assert.Equal(t, "RegistryForbidden", accepted.Reason)
	assert.Contains(t, accepted.Message, image(1))
	assert.Equal(t, corev1.ConditionFalse, f.condition(mcfgv1.MachineConfigPoolNodeDegraded).Status, "no node has failed")
	degraded := f.condition(mcfgv1.MachineConfigPoolDegraded)
	assert.Equal(t, corev1.ConditionTrue, degraded.Status)
	assert.Equal(t, manifests.ConditionImageAccepted, degraded.Reason)
	assert.Contains(t, degraded.Message, "may not pull")
	look := (&rollout.Cluster{Pools: []mcfgv1.MachineConfigPool{*f.object()}}).View(f.pool)
	assert.Empty(t, look.RefusedImage(), "a pool that is not layered has no image to refuse")

	check.err = nil
	f.look()
	assert.Equal(t, 1, check.asked, "a refused image is not asked for at every event")
	clock = clock.Add(-time.Hour)
	f.look()
	assert.Equal(t, 2, check.asked, "a clock that was set back stretches no pause")
	assert.Equal(t, image(1), f.record("a").DesiredImage)
	assert.Equal(t, "ChecksPassed", f.condition(manifests.ConditionImageAccepted).Reason)
	assert.Equal(t, corev1.ConditionFalse, f.condition(mcfgv1.MachineConfigPoolDegraded).Status)
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, image(1), f.record("b").DesiredImage)
	assert.Equal(t, 2, check.asked, "one look per rollout is enough")
	f.agent("b", arrive)
	f.restart()
	check.err = errors.New("the registry is gone")
	f.look()
	assert.Equal(t, 2, check.asked, "a pool that has its image needs no registry")
	f.layer("two", first, image(2))
	f.look()
	assert.Equal(t, image(1), f.record("a").DesiredImage)
	assert.Equal(t, "Internal", f.condition(manifests.ConditionImageAccepted).Reason)
	f.render(first, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	f.layer("three", first, image(3))
	f.look()
	assert.Equal(t, corev1.ConditionUnknown, f.condition(manifests.ConditionImageAccepted).
		Status, "what was said of another image does not count")
}

func TestNodesThatFollowFetchAhead(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{Preflight: &checks{}})
	first := "rendered-" + f.pool + "-1"
	for _, name := range []string{"a", "b", "c"} {
		f.node(name, target.Target{Config: first})
	}
	f.layer("one", first, image(1))
	f.look()
	require.Equal(t, image(1), f.record("a").DesiredImage)
	f.look()
	assert.Empty(t, f.annotation("a", manifests.AnnotationPrefetch))
	assert.Equal(t, image(1), f.annotation("b", manifests.AnnotationPrefetch), "b follows when a is done")
	assert.Empty(t, f.annotation("c", manifests.AnnotationPrefetch), "c does not yet")
	f.annotate("b", manifests.AnnotationPrefetched, image(1))
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, image(1), f.record("b").DesiredImage)
	assert.Empty(t, f.annotation("b", manifests.AnnotationPrefetch), "its turn has come, in the same patch")
	assert.Empty(t, f.annotation("b", manifests.AnnotationPrefetched))
	f.look()
	assert.Equal(t, image(1), f.annotation("c", manifests.AnnotationPrefetch))
	f.render(first, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	f.look()
	assert.Empty(t, f.annotation("c", manifests.AnnotationPrefetch), "a paused pool fetches nothing")
}

func TestStatusKeepsOthersConditions(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	p := f.object()
	p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolRenderDegraded,
		Status: corev1.ConditionTrue, Reason: "X", Message: "cannot render", LastTransitionTime: p.CreationTimestamp}}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), p))
	f.look()
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolRenderDegraded).Status)
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolDegraded).Message, "cannot render")
}
