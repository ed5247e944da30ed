package kubetest_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
)

// all are the objects of some kinds, as the administrator reads them, without what a write of the same changes.
func all(t *testing.T, e *kubetest.Env) map[string]client.Object {
	t.Helper()
	found := map[string]client.Object{}
	keep := func(kind string, o client.Object) {
		o.SetResourceVersion("")
		found[kind+" "+o.GetNamespace()+"/"+o.GetName()] = o
	}
	var namespaces corev1.NamespaceList
	var roles rbacv1.ClusterRoleList
	var bindings rbacv1.ClusterRoleBindingList
	var accounts corev1.ServiceAccountList
	var configs mcfgv1.MachineOSConfigList
	for _, list := range []client.ObjectList{&namespaces, &roles, &bindings, &accounts, &configs} {
		require.NoError(t, e.Client.List(t.Context(), list))
	}
	for i := range namespaces.Items {
		keep("Namespace", &namespaces.Items[i])
	}
	for i := range roles.Items {
		keep("ClusterRole", &roles.Items[i])
	}
	for i := range bindings.Items {
		keep("ClusterRoleBinding", &bindings.Items[i])
	}
	for i := range accounts.Items {
		keep("ServiceAccount", &accounts.Items[i])
	}
	for i := range configs.Items {
		keep("MachineOSConfig", &configs.Items[i])
	}
	return found
}

func TestANewEnvironmentIsAsNew(t *testing.T) {
	var before map[string]client.Object
	var host string
	var left, leftAccount client.Client
	t.Run("a test writes", func(t *testing.T) {
		e := shared.New(t)
		before, host, left = all(t, e), e.Config.Host, e.Client
		e.InstallRights(t)
		leftAccount = e.ClientAs(t, "openshift-machine-config-operator", "dayone-controller")
		require.NoError(t, leftAccount.List(t.Context(), &mcfgv1.MachineOSConfigList{}))
		held := machineOSConfig("worker", "worker")
		held.Finalizers = []string{"example.com/held"}
		require.NoError(t, e.Client.Create(t.Context(), held))
		require.NoError(t, e.Client.Delete(t.Context(), held))
		require.NoError(t, e.Client.Delete(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}))
		require.NoError(t, e.Client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
		require.NotEqual(t, before, all(t, e))
	})
	t.Run("the next one sees nothing of it", func(t *testing.T) {
		e := shared.New(t)
		assert.Equal(t, host, e.Config.Host, "it is the same server")
		assert.Equal(t, before, all(t, e))
		assert.ErrorContains(t, left.List(t.Context(), &corev1.NodeList{}), "has ended")
		assert.ErrorContains(t, leftAccount.List(t.Context(), &mcfgv1.MachineOSConfigList{}), "has ended")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dayone-controller"}}
		require.NoError(t, e.Client.Create(t.Context(), account))
		err := e.ClientAs(t, account.Namespace, account.Name).List(t.Context(), &mcfgv1.MachineOSConfigList{})
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		e.RestartAPIServer(t)
		require.NoError(t, e.Client.Delete(t.Context(), account))
	})
	t.Run("a test that changes which kinds there are", func(t *testing.T) {
		e := shared.New(t)
		assert.Equal(t, host, e.Config.Host, "it is the same server, started again")
		assert.Equal(t, before, all(t, e))
		require.NoError(t, e.Client.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "machineosconfigs.machineconfiguration.openshift.io"}}))
	})
	t.Run("another server is next", func(t *testing.T) {
		e := shared.New(t)
		assert.NoError(t, e.Client.Create(t.Context(), machineOSConfig("worker", "worker")))
	})
}
