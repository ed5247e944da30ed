package main

import (
	"context"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Two sets of controllers would write the same objects: dayone's wait, say so, and go on by themselves.
func TestTheControllersWaitWhileTheMachineConfigOperatorRuns(t *testing.T) {
	e := shared.Env(t)
	objects, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: "r.test/c:1",
		Builder: "r.test/b:1"}})
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, e.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("test"), client.ForceOwnership), o.GetName())
	}
	e.AwaitRights(t, objects)
	app := map[string]string{"k8s-app": "machine-config-controller"}
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: "machine-config-controller"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "r.test/c:1"}}}}}}
	role := map[string]string{"machineconfiguration.openshift.io/role": "aside"}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "aside"}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/aside": ""}}}}
	config := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-aside", Labels: role},
		Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}
	for _, o := range []client.Object{operator, config, pool} {
		require.NoError(t, e.Client.Create(t.Context(), o))
		t.Cleanup(func() { _ = e.Client.Delete(context.Background(), o) })
	}
	access := kubeconfig(t, e.As(t, cluster.DefaultNamespace, cluster.Controller))
	waits := run(t, access)
	says := func(what string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var m corev1.ConfigMap
			assert.NoError(c, e.Client.Get(context.Background(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
				Name: cluster.StatusName}, &m))
			assert.Contains(c, m.Data["conditions.json"], what)
		}, waitLimit, waitEvery)
	}
	says("MachineConfigOperatorIsBack")
	assert.Contains(t, waits.text(t), "controllers wait until the machine config operator is aside")
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.Empty(t, pool.Spec.Configuration.Name, "nobody renders")
	require.NoError(t, e.Client.Patch(t.Context(), operator,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))))
	require.Error(t, waits.wait(t), "the kubelet starts it anew")
	assert.Contains(t, waits.text(t), "the Machine Config Operator is aside: this program starts anew and works")

	works := run(t, access)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, e.Client.Get(context.Background(), client.ObjectKeyFromObject(pool), pool))
		assert.NotEmpty(c, pool.Spec.Configuration.Name, pool.Status.Conditions)
	}, waitLimit, waitEvery)
	says("dayone works in mode full")
	require.NoError(t, e.Client.Patch(t.Context(), operator,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))))
	require.Error(t, works.wait(t))
	assert.Contains(t, works.text(t), "the Machine Config Operator runs again (Deployment "+
		cluster.DefaultNamespace+"/machine-config-controller): this program starts anew and waits")
}
