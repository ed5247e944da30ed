package daemon_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/disruptioncontroller"
)

// renderWait is a limit for machines that are very busy.
const renderWait = 2 * time.Minute

// chain is a pool whose objects go all the way: render controller, policy controller, node controller, agent.
type chain struct {
	*fixture
	policies *disruptioncontroller.Policies
	plans    *disruptioncontroller.Plans
}

func newChain(t *testing.T) *chain {
	f := newRealFixture(t)
	c := f.env.ClientAs(t, cluster.DefaultNamespace, cluster.Controller)
	mgr, err := ctrl.NewManager(f.env.As(t, cluster.DefaultNamespace, cluster.Controller),
		ctrl.Options{Scheme: f.env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
			Controller: kubetest.Controllers()})
	require.NoError(t, err)
	require.NoError(t, rendercontroller.SetupWithManager(mgr, rendercontroller.Options{Versions: render.VersionsOf("v1"),
		Settle: -1}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	}))
	o := disruptioncontroller.Options{}
	return &chain{f, disruptioncontroller.NewPolicies(c, o), disruptioncontroller.NewPlans(c, c, o)}
}

// pool makes the pool and waits for its first config that has its MachineConfig: the controller may hear of the pool
// before it does of that.
func (c *chain) pool() *mcfgv1.MachineConfig {
	c.Helper()
	c.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + c.name: ""}},
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: c.name}}}})
	return c.await(func(p *mcfgv1.MachineConfigPool) bool {
		return slices.ContainsFunc(p.Spec.Configuration.Source,
			func(s corev1.ObjectReference) bool { return s.Name == "50-"+c.name })
	})
}

// target waits until the pool has another config than the one named, and gives it.
func (c *chain) target(other string) *mcfgv1.MachineConfig {
	c.Helper()
	return c.await(func(p *mcfgv1.MachineConfigPool) bool {
		return !slices.Contains([]string{"", other}, p.Spec.Configuration.Name)
	})
}

// await waits until the pool is as wanted, and gives its config.
func (c *chain) await(wanted func(*mcfgv1.MachineConfigPool) bool) *mcfgv1.MachineConfig {
	c.Helper()
	mc := &mcfgv1.MachineConfig{}
	require.EventuallyWithT(c, func(t *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(t, c.env.Client.Get(context.Background(), client.ObjectKey{Name: c.name}, p))
		require.True(t, wanted(p), "%+v %+v", p.Spec.Configuration, p.Status.Conditions)
		require.NoError(t, c.env.Client.Get(context.Background(), client.ObjectKey{Name: p.Spec.Configuration.Name}, mc))
	}, renderWait, 50*time.Millisecond)
	return mc
}

// plan lets the policy controller run, and gives what it publishes.
func (c *chain) plan() *disruption.PoolPlan {
	c.Helper()
	_, err := c.plans.Reconcile(c.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: c.name}})
	require.NoError(c, err)
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(c, c.env.Client.Get(c.Context(), client.ObjectKey{Name: c.name}, p))
	plan, err := disruption.PoolPlanOf(p.Annotations)
	require.NoError(c, err)
	require.NotNil(c, plan, "%+v", p.Status.Conditions)
	assert.Equal(c, p.Spec.Configuration.Name, plan.Target.Config)
	return plan
}

// deliver lets the node controller tell the node its target, and the node go there.
func (c *chain) deliver() {
	c.Helper()
	_, err := c.nodes.Reconcile(c.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: c.name}})
	require.NoError(c, err)
	require.NotEmpty(c, c.object().Annotations[manifests.AnnotationPlan], "the node is told what it will see")
	c.settle()
}

// merge changes an object as kubectl patch does.
func (c *chain) merge(o client.Object, patch map[string]any) {
	c.Helper()
	raw, err := json.Marshal(patch)
	require.NoError(c, err)
	require.NoError(c, c.env.Client.Patch(c.Context(), o, client.RawPatch("application/merge-patch+json", raw)))
}

func annotations(pairs map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": pairs}}
}

// mirrorPolicy writes the admin's word on mirrors; nil takes it away.
func (c *chain) mirrorPolicy(text any) {
	c.Helper()
	_, err := c.policies.Reconcile(c.Context(), reconcile.Request{})
	require.NoError(c, err)
	c.merge(&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		annotations(map[string]any{manifests.AnnotationMirrorPolicy: text}))
}

func TestAnOwnersAnnotationReachesTheNodesServices(t *testing.T) {
	c := newChain(t)
	own := rendered("50-"+c.name, "/etc/app.conf=old")
	own.Labels = map[string]string{manifests.LabelRole: c.name}
	own.Annotations = map[string]string{manifests.AnnotationOwnPostConfigAction: "DaemonReload, Restart app.service"}
	c.create(own)
	first := c.pool()
	assert.Contains(t, first.Annotations[manifests.AnnotationPostConfigActions], "MachineConfig 50-"+c.name)
	c.joined(first, "")
	c.m.calls = nil

	c.merge(own, map[string]any{"spec": map[string]any{"config": json.RawMessage(rendered("x", "/etc/app.conf=new").
		Spec.Config.Raw)}})
	c.target(first.Name)
	plan := c.plan()
	assert.Equal(t, disruption.LevelReload, plan.Level)
	assert.Equal(t, map[string]int{"DaemonReload": 1, "Restart app.service": 1}, plan.Counts)
	require.Len(t, plan.Transitions, 1)
	assert.Contains(t, plan.Transitions[0].Why, "policy for /etc/app.conf (MachineConfig 50-"+c.name+")")
	c.deliver()
	assert.Equal(t, []string{"daemon-reload", "restart app.service"}, c.m.calls)
	assert.Equal(t, "new", c.read("/etc/app.conf"))
	assert.Zero(t, c.m.boots)
	assert.Empty(t, c.record().DesiredDrain, "no pod was asked to leave")
}

// mirrorSets are, for each kind of object that makes registries.conf, one whose removal could let images come from
// elsewhere.
func mirrorSets() map[string]client.Object {
	return map[string]client.Object{
		"ImageDigestMirrorSet": &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "chain"},
			Spec: configv1.ImageDigestMirrorSetSpec{
				ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "a.example.com/b",
					Mirrors: []configv1.ImageMirror{"m.example.com/b"}}}}},
		"ImageContentSourcePolicy": &operatorv1alpha1.ImageContentSourcePolicy{ObjectMeta: metav1.ObjectMeta{Name: "chain"},
			Spec: operatorv1alpha1.ImageContentSourcePolicySpec{
				RepositoryDigestMirrors: []operatorv1alpha1.RepositoryDigestMirrors{{Source: "c.example.com/d",
					Mirrors: []string{"m.example.com/d"}}}}},
		"ImageTagMirrorSet": &configv1.ImageTagMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "chain"},
			Spec: configv1.ImageTagMirrorSetSpec{
				ImageTagMirrors: []configv1.ImageTagMirrors{{Source: "e.example.com/f",
					Mirrors: []configv1.ImageMirror{"m.example.com/f"}}}}},
		"Image": &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: configv1.ImageSpec{
			RegistrySources: configv1.RegistrySources{InsecureRegistries: []string{"g.example.com"}}}},
	}
}

func TestARemovedMirrorObjectDrainsUnlessItsKindIsExcepted(t *testing.T) {
	c := newChain(t)
	t.Cleanup(func() {
		_ = c.env.Client.Delete(context.Background(),
			&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	})
	own := rendered("50-" + c.name)
	own.Labels = map[string]string{manifests.LabelRole: c.name}
	c.create(own)
	config := c.pool()
	c.joined(config, "")
	for _, kind := range []string{"ImageDigestMirrorSet", "ImageContentSourcePolicy", "ImageTagMirrorSet", "Image"} {
		set := mirrorSets()[kind]
		c.create(set)
		with := c.target(config.Name)
		c.plan()
		c.deliver()
		assert.Contains(t, c.read("/etc/containers/registries.conf"), ".example.com", kind)

		require.NoError(t, c.env.Client.Delete(t.Context(), set), kind)
		config = c.target(with.Name)
		assert.Equal(t, disruption.LevelDrain, c.plan().Level, kind)
		for _, other := range []string{"ImageDigestMirrorSet", "ImageTagMirrorSet", "Image"} {
			c.mirrorPolicy(other + "=None")
			want := disruption.LevelDrain
			if other == kind || kind == "ImageContentSourcePolicy" && other == "ImageDigestMirrorSet" {
				want = disruption.LevelReload
			}
			assert.Equal(t, want, c.plan().Level, "%s removed, %s excepted", kind, other)
		}
		c.mirrorPolicy(kind + "=None")
		c.m.calls = nil
		before := c.record().DesiredDrain
		c.plan()
		c.deliver()
		assert.Equal(t, []string{"reload crio.service"}, c.m.calls, kind)
		assert.Equal(t, before, c.record().DesiredDrain, "%s: no pod was asked to leave", kind)
		c.mirrorPolicy(nil)
	}
	assert.Zero(t, c.m.boots)

	set := mirrorSets()["ImageDigestMirrorSet"]
	c.create(set)
	with := c.target(config.Name)
	c.plan()
	c.deliver()
	require.NoError(t, c.env.Client.Delete(t.Context(), set))
	config = c.target(with.Name)
	require.Equal(t, disruption.LevelDrain, c.plan().Level)
	c.deliver()
	assert.Contains(t, c.record().DesiredDrain, config.Name, "without an exception the pods were asked to leave")
}
