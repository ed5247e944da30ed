package daemon_test

import (
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// TestKubeletsMayWhatTheAgentOnAHostNeeds speaks as kubelets do, with the rights that are shipped for agents outside
// pods.
func TestKubeletsMayWhatTheAgentOnAHostNeeds(t *testing.T) {
	f := newRealFixture(t)
	text, err := assets.AgentKubeletRights()
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &o.Object))
		f.create(o)
		objects = append(objects, o)
	}
	f.controllerConfig(deploytest.NewAuthority(t).PEM)
	for _, name := range []string{"kubelet-own", "kubelet-other"} {
		f.create(&mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigNodeSpec{
			Node: mcfgv1.MCOObjectReference{Name: name}, Pool: mcfgv1.MCOObjectReference{Name: "worker"},
			ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-worker-1"}}})
	}
	f.create(rendered("rendered-kubelet-1"))
	as := func(node string) *kubeapi.Client {
		cfg := rest.CopyConfig(f.env.Config)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:kubelet-own",
			Groups: []string{"system:nodes", "system:authenticated"}}
		c, err := kubeapi.New(cfg, node, nil)
		require.NoError(t, err)
		return c
	}
	own, other := as("kubelet-own"), as("kubelet-other")
	status := &mcfgv1.MachineConfigNode{
		Status: mcfgv1.MachineConfigNodeStatus{
			ConfigVersion: &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{
				Current: "rendered-worker-1",
				Desired: "rendered-worker-1",
			},
		},
	}
	f.env.AwaitRights(t, objects)
	const refusal = "may not change the MachineConfigNode kubelet-other"
	var refused error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		refused = other.ApplyMachineConfigNode(t.Context(), status) // a policy holds a moment after it was made
		if refused != nil && strings.Contains(refused.Error(), refusal) {
			break
		}
	}
	require.ErrorContains(t, refused, refusal)
	require.NoError(t, own.ApplyMachineConfigNode(t.Context(), status))
	require.NoError(t, own.Event(t.Context(), kubeapi.Event{Name: "kubelet-own.x", Reason: "NodeDone", At: time.Now()}))
	c, err := own.ControllerConfig(t.Context())
	require.NoError(t, err)
	assert.Equal(t, render.ControllerConfigName, c.Name)
	_, err = own.Config(t.Context(), "rendered-kubelet-1")
	require.NoError(t, err)
	_, err = own.Policies(t.Context())
	require.NoError(t, err)
	for _, name := range []string{cluster.RegistryName, cluster.RegistryPeersName} {
		_, err = own.RegistryFiles(t.Context(), name)
		require.NoError(t, err)
	}
}
