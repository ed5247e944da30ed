package kubetest_test

import (
	"os"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

func machineOSConfig(name, pool string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "registry.example.test/os/worker:latest",
	}}
}

func TestCELRulesOfTheCRDsAreInForce(t *testing.T) {
	e := shared.Env(t)
	require.NoError(t, e.Client.Create(t.Context(), machineOSConfig("worker", "worker")))
	err := e.Client.Create(t.Context(), machineOSConfig("other", "worker"))
	require.ErrorContains(t, err, "name must match the referenced MachineConfigPool name")
}

func TestServiceAccountRights(t *testing.T) {
	e := shared.Env(t)
	ctx := t.Context()
	require.NoError(t, e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rbac"}}))
	meta := metav1.ObjectMeta{Namespace: "rbac", Name: "reader"}
	require.NoError(t, e.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}))
	require.NoError(t, e.Client.Create(ctx, &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}}}))
	require.NoError(t, e.Client.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "rbac", Name: "reader"}}}))

	reader := e.ClientAs(t, "rbac", "reader")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the authorizer hears of a binding by a watch
		assert.NoError(c, reader.List(ctx, &corev1.SecretList{}, client.InNamespace("rbac")))
	}, waitLimit, waitEvery)
	assert.True(t, apierrors.IsForbidden(reader.List(ctx, &corev1.SecretList{}, client.InNamespace("default"))))
	assert.True(t, apierrors.IsForbidden(reader.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("rbac"))))
}

// TestRightsThatAreUsed records what an account asks, and compares it with what it may.
func TestRightsThatAreUsed(t *testing.T) {
	e := shared.Env(t)
	role := func(verbs ...any) []*unstructured.Unstructured {
		meta := func(more map[string]any) map[string]any {
			more["metadata"] = map[string]any{"namespace": "used", "name": "program"}
			return more
		}
		return []*unstructured.Unstructured{
			{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "used"}}},
			{Object: meta(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"})},
			{Object: meta(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []any{
				map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": verbs}}})},
			{Object: meta(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
				"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": "program"},
				"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "used", "name": "program"}}})},
		}
	}
	e.InstallRightsOf(t, role("list", "get"))
	config, calls := kubetest.Record(e.As(t, "used", "program"))
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	require.NoError(t, c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("used")))
	calls.JustThese(t, role("list"), "used", "program")
	assert.Equal(t, 1, calls.Count(nil))

	wrong := &testing.T{}
	calls.JustThese(wrong, role("list", "get"), "used", "program")
	assert.True(t, wrong.Failed(), "get is never used")

	require.Error(t, c.List(t.Context(), &corev1.SecretList{}, client.InNamespace("used")))
	wrong = &testing.T{}
	calls.JustThese(wrong, role("list"), "used", "program")
	assert.True(t, wrong.Failed(), "Secrets are refused")
}

func TestRestartAPIServer(t *testing.T) {
	e := shared.Env(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	require.NoError(t, e.Client.Create(t.Context(), cm))
	e.StopAPIServer(t)
	require.Error(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	e.StartAPIServer(t)
	assert.NoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	assert.NoError(t, e.Client.List(t.Context(), &mcfgv1.MachineConfigPoolList{}))
}

func TestTheKubeconfigIsTheAdministrators(t *testing.T) {
	e := shared.Env(t)
	config, err := clientcmd.BuildConfigFromFlags("", e.Kubeconfig(t))
	require.NoError(t, err)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	assert.NoError(t, c.List(t.Context(), &corev1.NodeList{}))
}
