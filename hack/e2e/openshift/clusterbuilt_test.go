package openshift_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/manifests"
)

// repositories is a ConfigMap that builds in the cluster look for.
const repositories = `apiVersion: v1
kind: ConfigMap
metadata: {name: etc-yum-repos-d, namespace: openshift-machine-config-operator}
data: {a.repo: "[a]"}
`

// story puts what a new user has into the sample: beside the masters' MachineOSConfig and the worker's one for a pool
// of their own, annotated, and what its builds need.
func story(t *testing.T, dir string) {
	phasetest.AddInfra(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "layering/repositories.yaml"), []byte(repositories), 0o600))
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
		assert.Contains(t, string(m.Spec.RenderedImagePushSpec), pool+"-os:", pool)
		assert.True(t, strings.HasPrefix(string(m.Spec.RenderedImagePushSpec), ownRegistry+"/"), pool)
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: namespace,
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
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "etc-yum-repos-d"}}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	t.Cleanup(func() { assert.NoError(t, api.Delete(context.Background(), config)) })
}
