package openshift_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// infraPool takes the worker's MachineConfigs and its own, as users make such a pool.
const infraPool = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  machineConfigSelector:
    matchExpressions:
    - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ""}}
`

// repositories is a ConfigMap that builds in the cluster look for.
const repositories = `apiVersion: v1
kind: ConfigMap
metadata: {name: etc-yum-repos-d, namespace: openshift-machine-config-operator}
data: {a.repo: "[a]"}
`

// story puts what a new user has into the sample: beside the masters' MachineOSConfig and the worker's one for a pool
// of their own, annotated, and what its builds need.
func story(t *testing.T, dir string) {
	worker, err := os.ReadFile(filepath.Join(dir, "layering/worker.yaml"))
	require.NoError(t, err)
	infra := bytes.ReplaceAll(worker, []byte("  name: worker\n"), []byte("  name: infra\n"))
	infra = bytes.Replace(infra, []byte("  name: infra\n"),
		[]byte("  name: infra\n  annotations: {example.com/owner: platform}\n"), 1)
	infra = bytes.Replace(infra, []byte("worker-os"), []byte("infra-os"), 1)
	for file, text := range map[string][]byte{"layering/infra.yaml": infra,
		"openshift/99_infra-pool.yaml": []byte(infraPool), "layering/repositories.yaml": []byte(repositories)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	file := filepath.Join(dir, "install-config.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	named := bytes.Replace(raw, []byte("  - name: worker\npull"), []byte("  - name: worker\n  - name: infra\npull"), 1)
	require.NotEqual(t, string(raw), string(named))
	require.NoError(t, os.WriteFile(file, named, 0o600))
}

// clusterBuilds says that the cluster has the MachineOSConfigs of the pools that it builds itself, and builds: the
// workers come after the bootstrap and get their image there.
func (w *world) clusterBuilds() {
	t, api := w.t, shared.Env(w.t).Client
	for pool, owner := range map[string]string{"worker": "", "infra": "platform"} {
		m := &mcfgv1.MachineOSConfig{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: pool}, m))
		assert.Equal(t, owner, m.Annotations["example.com/owner"], pool)
		assert.NotContains(t, m.Annotations, manifests.AnnotationPreBuiltImage, pool)
		assert.Contains(t, string(m.Spec.RenderedImagePushSpec), "/ocp/"+pool+"-os:", pool)
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "openshift-machine-config-operator",
			Name: m.Spec.RenderedImagePushSecret.Name}, &corev1.Secret{}), pool)
		w.eventually("the cluster begins the build of pool "+pool, func() bool {
			var builds mcfgv1.MachineOSBuildList
			if api.List(t.Context(), &builds) != nil {
				return false
			}
			for _, b := range builds.Items {
				if b.Spec.MachineOSConfig.Name == pool {
					return true
				}
			}
			return false
		})
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-machine-config-operator",
		Name: "etc-yum-repos-d"}}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	require.NoError(t, api.Delete(t.Context(), config))
}
