package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// definition is a kind of the Prometheus operator; what its objects hold is not judged.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAMES.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: KIND, plural: NAMES, singular: NAME, listKind: KINDList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// Where the Prometheus operator's kinds are served, an installation brings what it reads, and uninstall takes it away.
// TestAnInstallationsWholeLife has a cluster without these kinds.
func TestMonitoringComesWhereItIsServed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crds.yaml")
	var crds strings.Builder
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		crds.WriteString(strings.NewReplacer("NAMES", strings.ToLower(kind)+"s", "NAME", strings.ToLower(kind), "KIND", kind).
			Replace(definition) + "---\n")
	}
	require.NoError(t, os.WriteFile(file, []byte(crds.String()), 0o600))
	e := kubetest.Start(t, kubetest.Options{CRDPaths: []string{file}, ControllerManager: true})
	kubeconfig := e.Kubeconfig(t)
	code, _, errs := dayone(t, "cluster", "install", "--kubeconfig", kubeconfig, "--image", "r.test/all:1", "--no-wait")
	require.Equal(t, cli.ExitOK, code, errs)
	objects, err := cluster.Monitoring(cluster.Options{})
	require.NoError(t, err)
	require.Len(t, objects, 5)
	is := func(o *unstructured.Unstructured) error {
		have := &unstructured.Unstructured{}
		have.SetGroupVersionKind(o.GroupVersionKind())
		return e.Client.Get(t.Context(), client.ObjectKeyFromObject(o), have)
	}
	for _, o := range objects {
		assert.NoError(t, is(o), "%s %s", o.GetKind(), o.GetName())
	}
	code, _, errs = dayone(t, "cluster", "uninstall", "--kubeconfig", kubeconfig, "--yes")
	require.Equal(t, cli.ExitOK, code, errs)
	for _, o := range objects {
		assert.True(t, apierrors.IsNotFound(is(o)), "%s %s", o.GetKind(), o.GetName())
	}
}
