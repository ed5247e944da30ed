package handover

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
)

// What rendering got in memory becomes what the API takes; what the install directory has stays as the user wrote it.
func TestSettleStandalone(t *testing.T) {
	config := func(release string) *mcfgv1.ControllerConfig {
		return &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller",
			Annotations: map[string]string{}}, Spec: mcfgv1.ControllerConfigSpec{ReleaseImage: release}}
	}
	made, written, released := config(""), config(""), config("quay.io/release@sha256:1")
	item := func(c *mcfgv1.ControllerConfig, file string) manifests.Item[*mcfgv1.ControllerConfig] {
		i := manifests.NewItem(c)
		i.Origin.File = file
		return i
	}
	gate := func(file string) manifests.Item[*configv1.FeatureGate] {
		i := manifests.NewItem(&configv1.FeatureGate{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
		i.Origin.File = file
		return i
	}
	p := &Plan{FinalCA: "PEM", Images: []Image{{Repository: "quay.example.com:5000/a"},
		{Repository: "quay.example.com:5000/b"}, {Repository: "other.example.com/c"}},
		Set: &manifests.Set{ControllerConfigs: []manifests.Item[*mcfgv1.ControllerConfig]{item(made, ""),
			item(written, "cluster/a.yaml"), item(released, "")},
			FeatureGates: []manifests.Item[*configv1.FeatureGate]{gate(""), gate("cluster/b.yaml")}}}
	settleStandalone(p)
	require.Len(t, p.Set.ControllerConfigs, 3)
	got := p.Set.ControllerConfigs[0].Object
	assert.Contains(t, got.Annotations, manifests.AnnotationStandalone)
	assert.Equal(t, mcfgv1.ControllerConfigSpec{IPFamilies: mcfgv1.IPFamiliesIPv4, Images: map[string]string{},
		ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{}, ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{
			{File: "quay.example.com..5000", Data: []byte("PEM")}, {File: "other.example.com", Data: []byte("PEM")}},
		KubeAPIServerServingCAData: []byte(noCA), RootCAData: []byte(noCA)}, got.Spec)
	assert.Empty(t, made.Annotations, "what was rendered from stays")
	assert.Same(t, written, p.Set.ControllerConfigs[1].Object)
	assert.Same(t, released, p.Set.ControllerConfigs[2].Object)
	require.Len(t, p.Set.FeatureGates, 1)
	assert.Equal(t, "cluster/b.yaml", p.Set.FeatureGates[0].Origin.File)

	p.FinalCA, p.Set.ControllerConfigs = "", p.Set.ControllerConfigs[:1]
	p.Set.ControllerConfigs[0].Object = made
	settleStandalone(p)
	assert.Empty(t, p.Set.ControllerConfigs[0].Object.Spec.ImageRegistryBundleUserData)
}

// What the ControllerConfig has already says more than what completes it.
func TestCompleteControllerConfigKeepsValues(t *testing.T) {
	s := mcfgv1.ControllerConfigSpec{IPFamilies: mcfgv1.IPFamiliesDualStack, Images: map[string]string{"a": "b"},
		ImageRegistryBundleData:     []mcfgv1.ImageRegistryBundle{{File: "a"}},
		ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{{File: "b"}},
		KubeAPIServerServingCAData:  []byte("c"), RootCAData: []byte("d")}
	want := *s.DeepCopy()
	completeControllerConfig(&s)
	assert.Equal(t, want, s)
}
