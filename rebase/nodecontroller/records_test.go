package nodecontroller_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

// OpenShift's default feature set has MachineConfigNodes without an image, and the API server drops what its schema
// does not have.
func TestARecordWithoutPlaceForAnImageIsWrittenOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	crds, err := cluster.CRDs()
	require.NoError(t, err)
	taken := 0
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if crd.Spec.Names.Kind == "MachineConfigNode" {
				delete(v.Schema.OpenAPIV3Schema.Properties["spec"].Properties, "configImage")
				taken++
			}
		}
	}
	require.Equal(t, 1, taken)
	env := kubetest.Start(t, kubetest.Options{CRDs: crds})
	env.InstallRights(t)
	f := newFixtureIn(t, env, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.layer("one", first, image(1))
	for _, n := range []string{"a", "b", "c"} {
		f.node(n, target.Target{Config: first, Image: image(1)})
	}
	f.look()
	m := &mortal{perNode: map[string]int{}}
	f.r = nodecontroller.New(m.client(f), f.ev, f.o)
	for range 5 {
		f.look()
	}
	assert.LessOrEqual(t, m.writes, 1, "one to find out")

	f.layer("two", second, image(2))
	f.render(second)
	f.look()
	var record mcfgv1.MachineConfigNode
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: f.name("a")}, &record))
	assert.Equal(t, second, record.Spec.ConfigVersion.Desired, "what there is place for is written")
	assert.Empty(t, record.Spec.ConfigImage.DesiredImage)
}
