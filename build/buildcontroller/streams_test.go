package buildcontroller

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/manifests/render"
)

// A pool whose image was built at bootstrap has that image in its rendered config: the base that it is built on again
// is its stream's, as MCO's first rendering had it, and not the ControllerConfig's.
func TestBaseOfAStream(t *testing.T) {
	image := func(name, digit string) mcfgv1.ImageDigestFormat {
		return mcfgv1.ImageDigestFormat(registry + "/os/" + name + "@sha256:" + strings.Repeat(digit, 64))
	}
	streams := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: render.OSImageStreamName},
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-10"},
		Status: mcfgv1.OSImageStreamStatus{DefaultStream: "rhel-10", AvailableStreams: []mcfgv1.OSImageStreamSet{
			{Name: "rhel-9", OSImage: image("rhel9", "2"), OSExtensionsImage: image("rhel9-extensions", "3")},
			{Name: "rhel-10", OSImage: image("rhel10", "4"), OSExtensionsImage: image("rhel10-extensions", "5")},
		}}}
	empty := streams.DeepCopy()
	empty.Status = mcfgv1.OSImageStreamStatus{}
	built := registry + "/os/custom@sha256:" + strings.Repeat("6", 64)
	for _, c := range []struct {
		name, pool, worker, rendered string
		streams                      *mcfgv1.OSImageStream
		want                         string
	}{
		{"no streams", "worker", "", built, nil, base},
		{"streams without images", "worker", "", built, empty, base},
		{"the default stream", "worker", "", built, streams, string(image("rhel10", "4"))},
		{"the worker's stream", "infra", "rhel-9", built, streams, string(image("rhel9", "2"))},
		{"masters inherit none", "master", "rhel-9", built, streams, string(image("rhel10", "4"))},
		{"the rendered config's own", "infra", "rhel-9", string(image("rhel10", "4")), streams, string(image("rhel10", "4"))},
		{"an unknown stream", "infra", "rhel-8", built, streams, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rendered := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered"},
				Spec: mcfgv1.MachineConfigSpec{OSImageURL: c.rendered}}
			rendered.Spec.Config.Raw = ignition("a")
			objects := []client.Object{rendered, &mcfgv1.ControllerConfig{
				ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName}, Spec: controllerConfigSpec()}}
			if c.streams != nil {
				objects = append(objects, c.streams.DeepCopy())
			}
			worker := newPool("worker", "rendered")
			worker.Spec.OSImageStream.Name = c.worker
			objects = append(objects, worker)
			cluster := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).Build()
			mosc := newConfig(c.pool, plainText)
			mosc.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(built)
			x := scope{reconciler: &reconciler{api: newAPI(cluster, cluster, namespace), memory: newMemory(1),
				o: Options{Platform: "linux/amd64"}}}
			got, err := findDesired(t.Context(), x, observation{config: mosc, pool: newPool(c.pool, "rendered")})
			require.NoError(t, err)
			if c.want == "" {
				require.NotNil(t, got.problem)
				assert.Equal(t, poolrequest.ReasonBaseMissing, got.problem.Reason)
				return
			}
			require.Nil(t, got.problem)
			assert.Equal(t, c.want, got.request.Base.Reference)
		})
	}
}
