package rendercontroller

import (
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

const image = "registry.example.com/os/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111"

func layering(pool, image string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool,
		Annotations: map[string]string{manifests.AnnotationPreBuiltImage: image}},
		Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: pool},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
			RenderedImagePushSpec:   "registry.example.com/os/" + mcfgv1.ImageTagFormat(pool) + ":x"}}
}

// component waits until the object for the pool's pre-built image names the image.
func (w *world) component(pool, image string) *mcfgv1.MachineConfig {
	w.t.Helper()
	var c mcfgv1.MachineConfig
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		require.NoError(t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: manifests.PreBuiltComponentPrefix + pool}, &c))
		assert.Equal(t, image, c.Spec.OSImageURL)
		assert.Len(t, c.OwnerReferences, 1)
	}, waitLimit, waitEvery)
	return &c
}

// drop takes the annotation away, as the build controller does.
func (w *world) drop(pool string) {
	w.t.Helper()
	var m mcfgv1.MachineOSConfig
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: pool}, &m))
	delete(m.Annotations, manifests.AnnotationPreBuiltImage)
	require.NoError(w.t, w.Client.Update(w.t.Context(), &m))
}

// looked waits until the controller has rendered the pool since: it sees a MachineConfig that a role of nobody has, and
// then one that the pool's config is not affected by.
func (w *world) looked(pool string) {
	w.t.Helper()
	c := machineConfig("00-seen", pool, "")
	c.Spec.KernelArguments = nil
	w.create(c)
	seen := func(want bool) {
		require.EventuallyWithT(w.t, func(t *assert.CollectT) {
			found := false
			for _, s := range w.pool(t, pool).Spec.Configuration.Source {
				found = found || s.Name == c.Name
			}
			assert.Equal(t, want, found)
		}, waitLimit, waitEvery)
	}
	seen(true)
	require.NoError(w.t, w.Client.Delete(w.t.Context(), c))
	seen(false)
}

func TestNameOutlivesTheAnnotation(t *testing.T) {
	set, err := manifests.ReadDir(filepath.Join("..", "render", "testdata", "a-layered-pool", "in"),
		manifests.ReadOptions{})
	require.NoError(t, err)
	bootstrap, err := render.Render(set, render.Options{Versions: versions})
	require.NoError(t, err)
	w := newWorld(t, 0)
	for _, o := range objects(set) {
		w.apply(o)
	}
	names := map[string]string{}
	for _, c := range bootstrap.Configs {
		pool := c.OwnerReferences[0].Name
		names[pool] = w.rendered(pool, func(n string) bool { return n == c.Name })
	}
	for _, m := range set.MachineOSConfigs {
		pool := m.Object.Spec.MachineConfigPool.Name
		c := w.component(pool, m.Object.Annotations[manifests.AnnotationPreBuiltImage])
		assert.Equal(t, role(pool), c.Labels)
		w.drop(pool)
		w.looked(pool)
		assert.Equal(t, names[pool], w.pool(t, pool).Spec.Configuration.Name, "no node reboots because the annotation went")
		var rendered mcfgv1.MachineConfig
		require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: names[pool]}, &rendered))
		assert.Equal(t, c.Spec.OSImageURL, rendered.Annotations[manifests.AnnotationPreBuiltImage])
	}
	w.stop()
	w.stop = w.start(Options{Versions: versions, Settle: -1})
	for pool, name := range names {
		w.looked(pool)
		assert.Equal(t, name, w.pool(t, pool).Spec.Configuration.Name, "nor because the controller was restarted")
	}
}

func TestAComponentOfSomebodyElseIsAdopted(t *testing.T) {
	w := newWorld(t, 0)
	w.create(render.PreBuiltComponent("blue", image), machineConfig("50-a", "blue", "a=1"), newPool("blue"))
	first := w.rendered("blue", whatever)
	m := layering("blue", image)
	w.create(m)
	assert.Equal(t, m.UID, w.component("blue", image).OwnerReferences[0].UID)
	w.drop("blue")
	w.looked("blue")
	assert.Equal(t, first, w.pool(t, "blue").Spec.Configuration.Name)
	other := image[:len(image)-1] + "2"
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	was := m.DeepCopy()
	m.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: other}
	require.NoError(t, w.Client.Patch(t.Context(), m, client.MergeFrom(was)))
	w.component("blue", other)
	w.rendered("blue", func(n string) bool { return n != first })
}

// TestOptingOutTakesTheImageAlong runs beside Kubernetes' own garbage collector.
func TestOptingOutTakesTheImageAlong(t *testing.T) {
	w := newWorldOn(t, kubetest.Start(t, kubetest.Options{ControllerManager: true}), 0)
	w.create(machineConfig("50-a", "blue", "a=1"), newPool("blue"))
	stock := w.rendered("blue", whatever)
	m := layering("blue", image)
	w.create(m)
	layered := w.rendered("blue", func(n string) bool { return n != stock })
	c := w.component("blue", image)
	w.drop("blue")
	w.looked("blue")
	require.Equal(t, layered, w.pool(t, "blue").Spec.Configuration.Name)
	require.NoError(t, w.Client.Delete(t.Context(), m))
	w.rendered("blue", func(n string) bool { return n == stock })
	assert.True(t, apierrors.IsNotFound(w.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c)))
}
