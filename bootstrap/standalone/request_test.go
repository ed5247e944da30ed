package standalone

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// The cluster's builder asks with the ControllerConfig's bundle and the release's extensions; the same question must
// have the same address here.
func TestSameAddressAsInCluster(t *testing.T) {
	const base, packages = "registry.example.com/ocp/base@sha256:", "registry.example.com/ocp/extensions@sha256:"
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	config := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-master-1"},
		Spec: mcfgv1.MachineConfigSpec{Extensions: []string{"usbguard"}, KernelType: "realtime",
			Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"}}`)}}}
	mosc := &mcfgv1.MachineOSConfig{
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:     mcfgv1.MachineConfigPoolReference{Name: "master"},
			RenderedImagePushSpec: "registry.example.com/ocp/master-os:1",
		},
	}
	cc := &mcfgv1.ControllerConfig{Spec: mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: []byte("pem"),
		BaseOSExtensionsContainerImage: packages + two}}
	pool := preflight.Pool{Pool: installconfig.Pool{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
		Repository: "registry.example.com/ocp/master-os"}
	set := &manifests.Set{MachineConfigs: []manifests.Item[*mcfgv1.MachineConfig]{manifests.NewItem(config)},
		ControllerConfigs: []manifests.Item[*mcfgv1.ControllerConfig]{manifests.NewItem(cc)}}
	h := day1.Host{Options: day1.Options{Platform: "linux/amd64"},
		In: &preflight.Input{Sidecar: &installconfig.Sidecar{}, Pools: []preflight.Pool{pool}, Set: set}}
	first := &render.Result{Configs: []*mcfgv1.MachineConfig{config},
		Pools: []*mcfgv1.MachineConfigPool{{ObjectMeta: metav1.ObjectMeta{Name: "master"}}}}
	assert.True(t, extends(h.In))
	require.Equal(t, []string{packages + two}, extensionsImages(h.In, first))
	s := sources(h, baseImage{Final: base + one}, first, map[string]string{
		packages + two: "10.0.0.1:5000/ocp/extensions@sha256:" + two, base + one: "10.0.0.1:5000/ocp/base@sha256:" + one})
	here, err := day1.NewRequest(h, &day1.Registry{Address: "10.0.0.1:5000", Identity: &day1.Identity{}}, s, pool)
	require.NoError(t, err)
	there, problem := poolrequest.Of(mosc, config, cc, base+one, "linux/amd64")
	require.Nil(t, problem)
	want, err := there.Address()
	require.NoError(t, err)
	got, err := here.Address()
	require.NoError(t, err)
	assert.Equal(t, want, got)

	h.In.Set = &manifests.Set{}
	first.Configs[0] = &mcfgv1.MachineConfig{}
	assert.False(t, extends(h.In))
	assert.Empty(t, extensionsImages(h.In, first))
}
