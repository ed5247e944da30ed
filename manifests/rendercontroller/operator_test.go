package rendercontroller

import (
	"context"
	"maps"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
)

// operatorsCluster is what a Machine Config Operator leaves to dayone: its versions are not this program's.
func operatorsCluster() (*manifests.Set, render.Versions) {
	v := render.Versions{Raw: "v4.21.0-1", Hash: "c0ffee", Payload: "4.21.0"}
	set := &manifests.Set{
		ControllerConfigs: []manifests.Item[*mcfgv1.ControllerConfig]{manifests.NewItem(&mcfgv1.ControllerConfig{
			ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName, Annotations: map[string]string{
				manifests.AnnotationGeneratedByVersion: v.Raw, manifests.AnnotationReleaseImageVersion: v.Payload}},
			Spec: mcfgv1.ControllerConfigSpec{BaseOSContainerImage: "registry.example.com/os@sha256:1"}})},
		FeatureGates: []manifests.Item[*configv1.FeatureGate]{manifests.NewItem(&configv1.FeatureGate{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
			Status: configv1.FeatureGateStatus{FeatureGates: []configv1.FeatureGateDetails{{Version: "4.21.0"},
				{Version: "4.21.1"}}}})},
		Pools: []manifests.Item[*mcfgv1.MachineConfigPool]{manifests.NewItem(newPool("worker"))},
	}
	for _, name := range []string{"00-worker", "01-worker-kubelet", "99-worker-generated-registries"} {
		m := machineConfig(name, "worker", name)
		m.Annotations = map[string]string{manifests.AnnotationGeneratedByController: v.Hash}
		set.MachineConfigs = append(set.MachineConfigs, manifests.NewItem(m))
	}
	// A mirror set whose MachineConfig the operator has made: it is not made here again.
	set.IDMSs = []manifests.Item[*configv1.ImageDigestMirrorSet]{manifests.NewItem(&configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "a.example.com/b",
				Mirrors: []configv1.ImageMirror{"c.example.com/b"}}}}})}
	return set, v
}

// TestAnOperatorsConfigsKeepTheirNames renders what a Machine Config Operator has made as that operator does, and
// waits while a new release is half written.
func TestAnOperatorsConfigsKeepTheirNames(t *testing.T) {
	set, v := operatorsCluster()
	want, err := render.Render(set, render.Options{Versions: v, ComponentsOnly: true})
	require.NoError(t, err)
	w := newWorld(t, 0)
	all := objects(set)
	w.apply(all[0])
	var controller mcfgv1.ControllerConfig
	key := client.ObjectKey{Name: render.ControllerConfigName}
	require.NoError(t, w.Client.Get(t.Context(), key, &controller))
	yes := true
	for _, o := range all[1:] {
		if m, is := o.(*mcfgv1.MachineConfig); is && m.Name != "99-worker-generated-registries" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "ControllerConfig",
				Name: controller.Name, UID: controller.UID, Controller: &yes}}
		}
		w.apply(o)
	}
	first := w.rendered("worker", func(n string) bool { return n == want.Configs[0].Name })

	release := func(o client.Object, more map[string]string) {
		require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		annotations := o.GetAnnotations()
		annotations[manifests.AnnotationRelease] = "4.21.1-0"
		maps.Copy(annotations, more)
		o.SetAnnotations(annotations)
		switch o := o.(type) {
		case *mcfgv1.ControllerConfig:
			o.Spec.BaseOSContainerImage = "registry.example.com/os@sha256:2"
		case *mcfgv1.MachineConfig:
			o.Spec.KernelArguments = []string{"new=" + o.Name}
		}
		require.NoError(t, w.Client.Update(t.Context(), o))
		time.Sleep(200 * time.Millisecond) // so long the controller could render what is half written
	}
	release(&controller, map[string]string{manifests.AnnotationReleaseImageVersion: "4.21.1",
		manifests.AnnotationGeneratedByVersion: "v4.21.1-1"})
	for _, item := range set.MachineConfigs {
		assert.Equal(t, first, w.pool(t, "worker").Spec.Configuration.Name, "before "+item.Object.Name)
		release(item.Object, map[string]string{manifests.AnnotationGeneratedByController: "decaf"})
	}
	second := w.rendered("worker", func(n string) bool { return n != first })
	var configs mcfgv1.MachineConfigList
	require.NoError(t, w.Client.List(context.Background(), &configs))
	var rendered []string
	for _, m := range configs.Items {
		if inputs.IsRendered(&m) {
			rendered = append(rendered, m.Name)
		}
	}
	assert.ElementsMatch(t, []string{first, second}, rendered, "one more config")
	w.condition("worker", "False", "")
}
