package openshift

import (
	"os"
	"path/filepath"
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

const (
	releaseBase       = "quay.io/release/art@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	releaseExtensions = "quay.io/release/art@sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// What a config asks for beside files, and what the cluster adds, reaches the build on the bootstrap node as it reaches
// one in the cluster.
func TestSameAddressAsInCluster(t *testing.T) {
	versions := render.Versions{Raw: "v", Hash: "v", Payload: "v"}
	mosc := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "master"}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:     mcfgv1.MachineConfigPoolReference{Name: "master"},
		RenderedImagePushSpec: "registry.example.com/ocp/master-os:1",
		Containerfile: []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch,
			Content: "FROM configs AS final\nRUN true\n"}}}}
	for name, spec := range map[string]mcfgv1.MachineConfigSpec{
		"nothing":                 {},
		"extensions and a kernel": {Extensions: []string{"usbguard", "kerberos"}, KernelType: "realtime"},
		"a kernel":                {KernelType: "64k-pages"},
		"the kernel that it has":  {KernelType: "default"},
		"its own extensions image": {Extensions: []string{"usbguard"},
			BaseOSExtensionsContainerImage: strings.ReplaceAll(releaseExtensions, strings.Repeat("2", 64),
				strings.Repeat("3", 64))},
		"extensions and kernel args": {Extensions: []string{"usbguard"}, KernelArguments: []string{"a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			role := map[string]string{manifests.LabelRole: "master"}
			spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"}}`)}
			set := &manifests.Set{MachineConfigs: []manifests.Item[*mcfgv1.MachineConfig]{manifests.NewItem(
				&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-x", Labels: role}, Spec: spec})},
				Pools: []manifests.Item[*mcfgv1.MachineConfigPool]{manifests.NewItem(
					&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "master"},
						Spec: mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role}}})}}
			render.StandaloneInputs(set, releaseBase, versions)
			cc := set.ControllerConfigs[0].Object
			cc.Spec.BaseOSExtensionsContainerImage, cc.Spec.AdditionalTrustBundle = releaseExtensions, []byte("a bundle\n")
			result, err := render.Render(set, render.Options{Versions: versions})
			require.NoError(t, err)

			o := Options{Options: day1.Options{StateDir: t.TempDir(), Platform: "linux/amd64"}, Root: t.TempDir()}
			pool := preflight.Pool{Pool: installconfig.Pool{Name: "master", BuildAt: installconfig.BuildAtBootstrap},
				Repository: "registry.example.com/ocp/master-os", MachineOSConfig: manifests.NewItem(mosc),
				Containerfile: mosc.Spec.Containerfile[0].Content}
			require.NoError(t, os.MkdirAll(filepath.Dir(o.at(podManifest)), 0o755))
			require.NoError(t, os.WriteFile(o.at(podManifest),
				[]byte("spec: {initContainers: [{image: mco, args: [--dest-dir=/x]}]}"), 0o600))
			require.NoError(t, render.Write(o.at(mcsDir), set, result))
			first, err := readFirst(o, []preflight.Pool{pool})
			require.NoError(t, err)
			embedded := map[string]string{}
			for _, image := range first.Bases() {
				_, digest, _ := strings.Cut(image, "@")
				embedded[image] = "10.0.0.1:9500/release/art@" + digest
			}
			s, err := first.sources(o, embedded)
			require.NoError(t, err)
			h := day1.Host{Options: o.Options, In: &preflight.Input{Sidecar: &installconfig.Sidecar{}}}
			here, err := day1.NewRequest(h, &day1.Registry{Address: "10.0.0.1:9500", Identity: &day1.Identity{}}, s, pool)
			require.NoError(t, err)
			there, problem := poolrequest.Of(mosc, result.Config("master"), cc, releaseBase, "linux/amd64")
			require.Nil(t, problem)
			assert.Equal(t, there.Extensions != nil, here.Extensions != nil)
			want, err := there.Address()
			require.NoError(t, err)
			got, err := here.Address()
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}
