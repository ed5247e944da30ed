package render_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// fromAPI is what a controller gets for an object that bootstrap read from a file: decoded from the API's JSON, with
// what the API server adds, in no order of files.
func fromAPI[T metav1.Object](t *testing.T, items []manifests.Item[T], fresh func() T) []manifests.Item[T] {
	t.Helper()
	var out []manifests.Item[T]
	for i, item := range items {
		raw, err := json.Marshal(item.Object)
		require.NoError(t, err)
		object := fresh()
		require.NoError(t, json.Unmarshal(raw, object))
		object.SetUID("0b0e6c0e-0000-4000-8000-000000000000")
		object.SetResourceVersion(strings.Repeat("1", i+1))
		object.SetGeneration(1)
		object.SetCreationTimestamp(metav1.Unix(1_700_000_000, 0))
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "cluster-bootstrap"}})
		out = append(out, manifests.NewItem(object))
	}
	slices.Reverse(out)
	return out
}

// TestBootstrapAndClusterRenderTheSame renders what bootstrap reads from files, and the same objects as a cluster's API
// returns them.
func TestBootstrapAndClusterRenderTheSame(t *testing.T) {
	options := render.Options{Versions: render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}}
	for _, name := range []string{"a-layered-pool", "a-custom-pool-inherits-an-image", "mirror-sets-and-image-settings",
		"kubelet-and-runtime-settings"} {
		t.Run(name, func(t *testing.T) {
			set, err := manifests.ReadDir(filepath.Join("testdata", name, "in"), manifests.ReadOptions{})
			require.NoError(t, err)
			bootstrap, err := render.Render(set, options)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, render.Write(dir, set, bootstrap))

			cluster := *set
			cluster.MachineConfigs = fromAPI(t, set.MachineConfigs,
				func() *mcfgv1.MachineConfig { return &mcfgv1.MachineConfig{} })
			cluster.Pools = fromAPI(t, set.Pools, func() *mcfgv1.MachineConfigPool { return &mcfgv1.MachineConfigPool{} })
			cluster.MachineOSConfigs = fromAPI(t, set.MachineOSConfigs,
				func() *mcfgv1.MachineOSConfig { return &mcfgv1.MachineOSConfig{} })
			cluster.ControllerConfigs = fromAPI(t, set.ControllerConfigs,
				func() *mcfgv1.ControllerConfig { return &mcfgv1.ControllerConfig{} })
			inCluster, err := render.Render(&cluster, options)
			require.NoError(t, err)
			require.Len(t, inCluster.Configs, len(bootstrap.Configs))
			for i, c := range inCluster.Configs {
				assert.Equal(t, bootstrap.Configs[i].Name, c.Name)
				assert.Equal(t, bootstrap.Configs[i].Annotations, c.Annotations)
				raw, err := os.ReadFile(filepath.Join(dir, render.ConfigsDir, c.Name+".yaml"))
				require.NoError(t, err)
				written, err := manifests.Read(raw, "written", manifests.ReadOptions{})
				require.NoError(t, err)
				want, err := manifests.Marshal(written.MachineConfigs[0].Object.Spec)
				require.NoError(t, err)
				got, err := manifests.Marshal(c.Spec)
				require.NoError(t, err)
				assert.Equal(t, string(want), string(got))
			}
		})
	}
}
