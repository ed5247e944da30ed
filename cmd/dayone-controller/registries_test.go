package main

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

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/wanted"
)

// ownName is HOST:PORT of the control plane's registries.
const ownName = "api-int.lab.example.com:22626"

// TestRegistriesBesideMCO: in mode builder the program and the pod on a control-plane node bring what MCO's builds made
// to the node's registry, and its word back, with the rights of that installation and no others.
func TestRegistriesBesideMCO(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	env := shared.New(t)
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Building, Registry: ownName,
		Images: cluster.Images{Controller: "r.test/c:1", Builder: "r.test/b:1", Daemon: "r.test/d:1"}})
	require.NoError(t, err)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: cluster.DefaultNamespace}})) // it is MCO's
	env.InstallRightsOf(t, objects)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "master-0",
		Labels: map[string]string{"node-role.kubernetes.io/master": ""}}}
	require.NoError(t, env.Client.Create(t.Context(), n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	require.NoError(t, env.Client.Status().Update(t.Context(), n))
	image := ownName + "/ns/os@sha256:" + strings.Repeat("a", 64)
	require.NoError(t, env.Client.Create(t.Context(), &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "build",
		Annotations: map[string]string{manifests.AnnotationPushedImage: image}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-1"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
			RenderedImagePushSpec: ownName + "/ns/os:latest"}}))

	pods := "dayone/dayone-daemon@sha256:" + strings.Repeat("b", 64)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.DefaultNamespace, Name: cluster.RegistryImages}, Data: map[string]string{
		"dayone..dayone-daemon": ownName + "/" + pods + "\n" + "r.test/other:1"}}))

	p := start(t, "--kubeconfig", kubeconfig(t, env.As(t, cluster.DefaultNamespace, cluster.Controller)), "--mode",
		"builder", "--builder-image", "r.test/b:1", "--cluster-registry", ownName, "--lease-duration", "30s")
	root := t.TempDir()
	as, calls := kubetest.Record(env.As(t, cluster.DefaultNamespace, cluster.Daemon))
	api, err := kubeapi.New(as, "master-0", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go daemon.ServeRegistry(ctx, daemon.RegistryOptions{Node: "master-0", Cluster: api, Root: root})

	require.Eventually(t, func() bool {
		return calls.Count(func(c kubetest.Call) bool { return c.Resource == "nodes" }) > 0
	}, waitLimit, waitEvery, "it takes an old report away: %s", p.text(t))
	require.NoError(t, os.MkdirAll(filepath.Join(root, wanted.Dir), 0o700)) // dayone-registry has come
	var list wanted.List
	require.Eventually(t, func() bool {
		list, err = wanted.ReadFile(filepath.Join(root, wanted.Dir, wanted.ListFile))
		return err == nil
	}, waitLimit, waitEvery, "the node has its list: %s", p.text(t))
	require.Len(t, list.Images, 2)
	assert.Equal(t, []string{pods, image}, []string{list.Images[0].Name(), ownName + "/" + list.Images[1].Name()})
	known, err := peers.Read(filepath.Join(root, peers.Path))
	require.NoError(t, err)
	assert.Equal(t, []peers.Peer{{Name: "master-0", Address: "192.0.2.7:22626"}}, known.Peers)

	require.NoError(t, wanted.WriteReport(filepath.Join(root, wanted.Dir, wanted.ReportFile),
		wanted.NewReport(list, nil, 1<<40, 0)))
	require.Eventually(t, func() bool {
		var m corev1.ConfigMap
		err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: cluster.RegistryName}, &m)
		return err == nil && strings.Contains(m.Data[cluster.StatusConditions], "AllHeld") &&
			strings.Contains(m.Data[cluster.StatusConditions], `\"r.test/other:1\" in dayone..dayone-daemon`)
	}, waitLimit, waitEvery, "the registry's word comes back: %s", p.text(t))
	cancel()
	calls.JustThese(t, objects, cluster.DefaultNamespace, cluster.Daemon)
	assert.NotContains(t, p.text(t), "forbidden")
}
