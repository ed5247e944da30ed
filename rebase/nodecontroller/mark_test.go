package nodecontroller_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

// taints are a node's, without those of the cluster's own controllers.
func (f *fixture) taints(node string) (out []corev1.Taint) {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	for _, t := range n.Spec.Taints {
		if t.Key != corev1.TaintNodeNotReady {
			out = append(out, t)
		}
	}
	return out
}

func TestNodesThatWaitAreTainted(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	own := corev1.Taint{Key: "example.com/gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	waiting := corev1.Taint{Key: "UpdateInProgress", Effect: corev1.TaintEffectPreferNoSchedule}
	for _, n := range []string{"a", "b"} {
		f.node(n, target.Target{Config: first})
	}
	var b corev1.Node
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("b")}, &b))
	b.Spec.Taints = append(b.Spec.Taints, own)
	require.NoError(t, f.env.Client.Update(t.Context(), &b))
	f.look()
	assert.Empty(t, f.taints("a"))
	assert.Equal(t, []corev1.Taint{own}, f.taints("b"))

	f.render(second, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	f.look()
	assert.Equal(t, []corev1.Taint{own}, f.taints("b"), "of a paused pool nobody waits for a turn")
	f.render(second, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = false })
	f.look()
	assert.Empty(t, f.taints("a"), "its turn has come")
	assert.Equal(t, []corev1.Taint{own, waiting}, f.taints("b"))
	f.restart()
	f.look()
	assert.Equal(t, []corev1.Taint{own, waiting}, f.taints("b"), "once")
	f.agent("a", arrive)
	f.look()
	assert.Equal(t, second, f.record("b").DesiredConfig, "the taint holds up nothing")
	assert.Equal(t, []corev1.Taint{own}, f.taints("b"), "it goes in the request that sends the node")

	f.agent("b", arrive)
	f.look()
	f.render("rendered-" + f.pool + "-3")
	f.look()
	require.Contains(t, f.taints("b"), waiting)
	f.render(second)
	f.look()
	assert.Equal(t, []corev1.Taint{own}, f.taints("b"), "the config went back to what it has")
}

func TestNodesBearTheTopology(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	f.node("a", target.Target{Config: "rendered-" + f.pool + "-1"})
	f.look()
	assert.Empty(t, f.annotation("a", manifests.AnnotationControlPlaneTopology), "nobody says it")
	f.create(&mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: mcfgv1.ControllerConfigSpec{ClusterDNSIP: "10.0.0.1", CloudProviderConfig: "", IPFamilies: "IPv4",
			ReleaseImage: "r", RootCAData: []byte("x"), KubeAPIServerServingCAData: []byte("x"),
			AdditionalTrustBundle: []byte("x"), ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{},
			ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{}, Images: map[string]string{},
			Infra: &configv1.Infrastructure{TypeMeta: metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(),
				Kind: "Infrastructure"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
				Status: configv1.InfrastructureStatus{ControlPlaneTopology: configv1.HighlyAvailableTopologyMode,
					InfrastructureTopology: configv1.HighlyAvailableTopologyMode}},
			DNS: &configv1.DNS{TypeMeta: metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "DNS"},
				ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: configv1.DNSSpec{BaseDomain: "example.com"}}}})
	f.look()
	assert.Equal(t, "HighlyAvailable", f.annotation("a", manifests.AnnotationControlPlaneTopology))
}

// A node that has booted for a custom pool comes without the labels by which the pool selects it. It gets them instead
// of the config of the pool that it is in for want of them.
func TestANodeThatBootedForACustomPoolGetsItsLabels(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	infra := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-infra"},
		Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"example.com/infra": "yes", "node-role.kubernetes.io/master": "",
				"node-restriction.kubernetes.io/a": "b"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "example.com/disk", Operator: metav1.LabelSelectorOpExists},
				{Key: "example.com/zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"x", "y"}}}}}}
	f.create(infra)
	booted := "rendered-" + f.pool + "-infra-1"
	f.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: booted,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(infra,
			mcfgv1.GroupVersion.WithKind("MachineConfigPool"))}}})
	f.node("a", target.Target{Config: booted})
	f.annotate("a", manifests.AnnotationFirstPivotConfig, booted)
	f.look()
	var n corev1.Node
	require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("a")}, &n))
	assert.Equal(t, booted, f.record("a").DesiredConfig, "it is not sent back")
	assert.Equal(t, "yes", n.Labels["example.com/infra"])
	assert.Contains(t, n.Labels, "example.com/disk")
	for _, key := range []string{"example.com/zone", "node-role.kubernetes.io/master",
		"node-restriction.kubernetes.io/a"} {
		assert.NotContains(t, n.Labels, key)
	}
	assert.Contains(t, n.Annotations, manifests.AnnotationCustomPoolLabelsApplied)

	delete(n.Labels, "example.com/infra")
	require.NoError(t, f.env.Client.Update(t.Context(), &n))
	f.look()
	assert.NotEqual(t, booted, f.record("a").DesiredConfig, "what an administrator takes away stays away")
}
