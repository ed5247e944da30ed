package disruptioncontroller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/disruptioncontroller"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

const policyJSON = "/etc/containers/policy.json"

func TestThePlanStandsBeforeAnythingIsDelivered(t *testing.T) {
	f := newFixture(t)
	f.config(1, policyJSON+"=1")
	f.config(2, policyJSON+"=2", "/etc/a=1")
	f.config(3, policyJSON+"=3")
	f.aim(2)
	f.node("a", f.rendered(1), "")
	f.node("b", f.rendered(1), "")
	f.node("c", f.rendered(3), "")
	f.node("d", f.rendered(2), "")
	plan, c := f.plan()
	require.NotNil(t, plan)
	assert.Equal(t, target.Target{Config: f.rendered(2)}, plan.Target)
	assert.Equal(t, 3, plan.Nodes, "the one that has it is not among them")
	assert.Equal(t, map[string]int{"Drain": 3, "Reboot": 3}, plan.Counts)
	require.Len(t, plan.Transitions, 2)
	assert.Equal(t, []string{f.pool + "-a", f.pool + "-b"}, plan.Transitions[0].Names)
	assert.NotEmpty(t, plan.Transitions[0].Hash)
	assert.Equal(t, corev1.ConditionTrue, c.Status)
	assert.Equal(t, "Reboot", c.Reason)
	assert.Contains(t, c.Message, "/etc/a added: no policy covers this path")
	still := f.object().ResourceVersion
	f.plan()
	assert.Equal(t, still, f.object().ResourceVersion, "nothing new, nothing written")

	f.admin(`{"files":[{"path":"/etc/a","actions":[{"type":"None"}]}]}`, nil)
	plan, c = f.plan()
	assert.Equal(t, disruption.LevelReload, plan.Level)
	assert.Equal(t, "Reload", c.Reason)
	assert.Contains(t, c.Message, "Reload crio.service on 3")
	f.aim(3)
	plan, _ = f.plan()
	assert.Equal(t, 3, plan.Nodes)
	assert.Equal(t, f.rendered(3), plan.Target.Config)
}

func TestARemovedMirrorDrainsUnlessTheAdminSaysOtherwise(t *testing.T) {
	f := newFixture(t)
	const mirrors = "%5B%5Bregistry%5D%5D%0Alocation%3D%27a.io%2Fb%27%0A" +
		"%5B%5Bregistry.mirror%5D%5D%0Alocation%3D%27m.io%2Fb%27%0Apull-from-mirror%3D%27digest-only%27%0A"
	f.config(1, "/etc/containers/registries.conf="+mirrors)
	f.config(2)
	f.aim(2)
	f.node("a", f.rendered(1), "")
	plan, _ := f.plan()
	assert.Equal(t, disruption.LevelDrain, plan.Level)
	f.admin(`{}`, map[string]string{manifests.AnnotationMirrorPolicy: "ImageDigestMirrorSet=None"})
	plan, _ = f.plan()
	assert.Equal(t, disruption.LevelReload, plan.Level)
}

func TestALayeredPoolsConfigOnlyImageNeedsNoReboot(t *testing.T) {
	f := newFixture(t)
	image := func(n int) string { return fmt.Sprintf("r.example.com/os/worker@sha256:%064d", n) }
	f.config(1, policyJSON+"=1")
	f.config(2, policyJSON+"=2")
	f.aim(2)
	f.node("a", f.rendered(1), image(1))
	f.layer("one", 1, image(1), "ground")
	_, c := f.plan()
	assert.Equal(t, corev1.ConditionFalse, c.Status)
	assert.Equal(t, "ImageOutstanding", c.Reason)
	assert.Contains(t, c.Message, "what it does to the nodes is known when its build has begun")
	f.begin("next", 2, "ground", "")
	_, c = f.plan()
	assert.Equal(t, "ImageOutstanding", c.Reason)
	assert.Contains(t, c.Message, "expected then: "+f.rendered(2)+" changes 1 nodes: Reload")
	f.layer("two", 2, image(2), "ground")
	plan, _ := f.plan()
	assert.Equal(t, disruption.LevelReload, plan.Level)
	assert.Equal(t, disruption.ImageConfig, plan.Transitions[0].Change)
	f.layer("three", 2, image(3), "another base")
	plan, _ = f.plan()
	assert.Equal(t, disruption.LevelReboot, plan.Level)
}

// TestNextImage asks for another image in each way that there is, of a pool whose nodes all have what
// they should have.
func TestNextImage(t *testing.T) {
	image := func(n int) string { return fmt.Sprintf("r.example.com/os/worker@sha256:%064d", n) }
	for _, c := range []struct {
		name string
		// optedOut: the pool is not layered before it happens.
		optedOut bool
		happens  func(f *fixture)
		expected string
	}{
		{"config base", false, func(f *fixture) { f.config(2, policyJSON+"=1"); f.aim(2); f.begin("b", 2, "h", "") },
			"Reboot"},
		{"release base", false, func(f *fixture) { f.begin("b", 1, "h", "") }, "Reboot"},
		{"containerfile", false, func(f *fixture) { f.begin("b", 1, "i", "") }, "Reboot"},
		{"rebuild", false, func(f *fixture) {
			f.mark(f.machineOSConfig(), manifests.AnnotationRebuild)
		}, "Reboot"},
		{"pool rebuild", false, func(f *fixture) {
			f.mark(f.object(), manifests.AnnotationRebuildImage)
		}, "Reboot"},
		{"rebuild begun", false, func(f *fixture) { f.begin("b", 1, "ground", "true") }, "Reboot"},
		{"opt in", true, func(f *fixture) { f.optIn() }, "Reboot"},
		{"config alone", false, func(f *fixture) {
			f.config(2, policyJSON+"=2")
			f.aim(2)
			f.begin("b", 2, "ground", "")
		}, "Reload"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.config(1, policyJSON+"=1")
			f.aim(1)
			if c.optedOut {
				f.node("a", f.rendered(1), "")
			} else {
				f.node("a", f.rendered(1), image(1))
				f.layer("one", 1, image(1), "ground")
				_, said := f.plan()
				require.Equal(t, "Nothing", said.Reason, said.Message)
			}
			c.happens(f)
			_, said := f.plan()
			assert.Equal(t, corev1.ConditionFalse, said.Status)
			assert.Equal(t, "ImageOutstanding", said.Reason)
			assert.Regexp(t, "expected then: .* changes 1 nodes: "+c.expected, said.Message)
		})
	}
}

// A pool is opted out by the deletion of its MachineOSConfig: its nodes go back to the base OS.
func TestOptingOutReboots(t *testing.T) {
	f := newFixture(t)
	image := fmt.Sprintf("r.example.com/os/worker@sha256:%064d", 1)
	f.config(1)
	f.aim(1)
	f.node("a", f.rendered(1), image)
	f.layer("one", 1, image, "ground")
	require.NoError(t, f.env.Client.Delete(t.Context(), f.machineOSConfig()))
	plan, said := f.plan()
	assert.Equal(t, "Reboot", said.Reason, said.Message)
	assert.Equal(t, map[string]int{"Drain": 1, "Reboot": 1}, plan.Counts)
}

// begin is what the builder does when it begins a build.
func (f *fixture) begin(build string, config int, ground, forced string) {
	f.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-" + build,
		Labels:      map[string]string{manifests.LabelRenderedMachineConfig: f.rendered(config)},
		Annotations: map[string]string{manifests.AnnotationBuildGround: ground, manifests.AnnotationBuildAddress: build}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: f.rendered(config)},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: f.pool}, RenderedImagePushSpec: "r.example.com/os/worker:x"}}
	if forced != "" {
		b.Annotations[manifests.AnnotationBuildForced] = forced
	}
	f.create(b)
	m := f.machineOSConfig()
	was := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, manifests.AnnotationCurrentBuild, b.Name)
	require.NoError(f, f.env.Client.Patch(f.Context(), m, client.MergeFrom(was)))
}

func (f *fixture) machineOSConfig() *mcfgv1.MachineOSConfig {
	f.Helper()
	m := &mcfgv1.MachineOSConfig{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.pool}, m))
	return m
}

// mark gives an object an annotation without a value.
func (f *fixture) mark(o client.Object, key string) {
	f.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, key)
	require.NoError(f, f.env.Client.Patch(f.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// optIn makes the pool's MachineOSConfig.
func (f *fixture) optIn() *mcfgv1.MachineOSConfig {
	f.Helper()
	m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: f.pool},
		RenderedImagePushSpec:   "r.example.com/os/worker:x",
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"}}}
	f.create(m)
	return m
}

// layer opts the pool in, with an image that a build has brought for a config.
func (f *fixture) layer(build string, config int, image, ground string) {
	f.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-" + build,
		Labels:      map[string]string{manifests.LabelRenderedMachineConfig: f.rendered(config)},
		Annotations: map[string]string{manifests.AnnotationBuildGround: ground, manifests.AnnotationBuildAddress: build}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: f.rendered(config)},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: f.pool}, RenderedImagePushSpec: "r.example.com/os/worker:x"}}
	f.create(b)
	start, end := metav1.NewTime(time.Now().Add(-time.Minute)), metav1.Now()
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &end,
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: end}}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), b))
	m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool}}
	if f.env.Client.Get(f.Context(), client.ObjectKeyFromObject(m), m) != nil {
		m = f.optIn()
	}
	m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), m))
}

func TestBudgetsThatHoldADrainUpAreNamed(t *testing.T) {
	f := newFixture(t)
	f.config(1, "/etc/a=1")
	f.config(2, "/etc/a=2")
	f.aim(2)
	f.node("a", f.rendered(1), "")
	app := map[string]string{"app": f.pool}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: f.pool},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}}}
	f.create(budget)
	budget.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, CurrentHealthy: 1, DesiredHealthy: 1}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), budget))
	plan, _ := f.plan()
	assert.Empty(t, plan.Blocking, "it has no pod on these nodes")
	f.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: f.pool, Labels: app},
		Spec: corev1.PodSpec{NodeName: f.pool + "-a", Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	plan, c := f.plan()
	assert.Equal(t, []string{"default/" + f.pool}, plan.Blocking)
	assert.Contains(t, c.Message, "allow no eviction now: default/"+f.pool)
}

func TestTheTimeIsEstimatedByWhatNodesNeededBefore(t *testing.T) {
	f := newFixture(t)
	f.config(1, "/etc/a=1")
	f.config(2, "/etc/a=2")
	f.aim(2)
	f.node("a", f.rendered(1), "")
	f.node("b", f.rendered(1), "")
	plan, c := f.plan()
	assert.Zero(t, plan.Seconds)
	assert.NotContains(t, c.Message, "about")
	// The node controller tells a; it arrives after ten minutes.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-a"}}
	arrives := func(lastBoot string) {
		t.Helper()
		promise := plan.Promise(plan.Transitions[0])
		promise.Sent = f.now.Format(time.RFC3339)
		text, err := promise.Encode()
		require.NoError(t, err)
		patch, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"annotations": map[string]string{manifests.AnnotationPlan: text,
				manifests.AnnotationDesiredConfig: f.rendered(2), manifests.AnnotationCurrentConfig: f.rendered(2),
				manifests.AnnotationLastBoot: lastBoot}}})
		require.NoError(t, err)
		require.NoError(t, f.env.Client.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", patch)))
	}
	arrives("hard")
	f.now = f.now.Add(10 * time.Minute)
	// Its clock is years ahead: what it says of the time of its arrival cannot be.
	record := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
		Spec: mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: n.Name},
			Pool:          mcfgv1.MCOObjectReference{Name: f.pool},
			ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: f.rendered(2)}}}
	f.create(record)
	record.Status.Conditions = []metav1.Condition{{Type: string(mcfgv1.MachineConfigNodeUpdated),
		Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(f.now.AddDate(3, 0, 0))}}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), record))
	f.plan()
	second, c := f.plan()
	assert.Equal(t, int64(600), second.Seconds)
	assert.Contains(t, c.Message, "about 10m0s")
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	assert.Equal(t, map[string]int64{"Reboot": 600}, rollout.TimesOf(n.Annotations).Seconds)
	f.now = f.now.Add(time.Hour)
	f.plan()
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	assert.Equal(t, map[string]int64{"Reboot": 600}, rollout.TimesOf(n.Annotations).Seconds, "each way is noted once")

	arrives("soft")
	f.now = f.now.Add(time.Minute)
	f.plan()
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	assert.Equal(t, map[string]int64{"Reboot": 600, "SoftReboot": 60}, rollout.TimesOf(n.Annotations).Seconds)
}

// TestSomebodyElsesWriteIsNoFailure lets somebody change the pool right before its condition is written.
func TestSomebodyElsesWriteIsNoFailure(t *testing.T) {
	f := newFixture(t)
	f.config(1, "/etc/a=1")
	f.config(2, "/etc/a=2")
	f.aim(2)
	f.node("a", f.rendered(1), "")
	under, err := client.NewWithWatch(f.env.As(t, cluster.DefaultNamespace, cluster.Controller),
		client.Options{Scheme: f.env.Scheme})
	require.NoError(t, err)
	disturbed := false
	c := interceptor.NewClient(under, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if !disturbed {
				disturbed = true
				pool := f.object()
				pool.Labels = map[string]string{"disturbed": "yes"}
				require.NoError(t, f.env.Client.Update(ctx, pool))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r := disruptioncontroller.NewPlans(c, c, disruptioncontroller.Options{})
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: f.pool}})
	require.NoError(t, err)
	assert.True(t, disturbed)
	assert.NotZero(t, result.RequeueAfter, "it is looked at again soon")
	assert.Less(t, result.RequeueAfter, time.Second)
	_, said := f.plan()
	assert.Equal(t, corev1.ConditionTrue, said.Status)
}

func TestAConfigThatIsGoneAndOneThatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.config(2)
	f.aim(2)
	f.node("a", f.rendered(1), "")
	plan, _ := f.plan()
	assert.Equal(t, disruption.LevelReboot, plan.Level, "who cannot compare says the worst")
	assert.Empty(t, plan.Transitions[0].Hash)
	f.aim(7)
	_, c := f.plan()
	assert.Equal(t, corev1.ConditionFalse, c.Status)
	assert.Contains(t, c.Message, "there is no rendered config "+f.rendered(7))
}
