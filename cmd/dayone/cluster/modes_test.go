package cluster

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// operatorDeployment has the name and the place of one of the Machine Config Operator's.
func operatorDeployment(name string) *appsv1.Deployment {
	app := map[string]string{"k8s-app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: operatorPod(app)}}
}

func operatorPod(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
			Containers: []corev1.Container{{Name: "c", Image: "r.test/c:1"}}}}
}

// operatorDaemonSet is like operatorDeployment.
func operatorDaemonSet(name string) *appsv1.DaemonSet {
	app := map[string]string{"k8s-app": name}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: name},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: operatorPod(app)}}
}

// machineConfigOperator stands in for the workloads of one that runs, with a pool, a node and what a user has made.
func machineConfigOperator(t *testing.T, e *kubetest.Env) {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.PullSecretNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.EntitlementNamespace}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"kubernetes.io/os": "linux"}}},
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "push"}},
		machineOSConfig("worker"),
		operatorDeployment("machine-config-operator"), operatorDeployment("machine-config-controller"),
		operatorDeployment("machine-os-builder"), operatorDaemonSet("machine-config-daemon"),
		operatorDaemonSet("machine-config-server"),
	} {
		require.NoError(t, e.Client.Create(t.Context(), o), o.GetName())
	}
}

// same compares a cluster with what it was; what belonged to a Deployment goes after it.
func same(t *testing.T, e *kubetest.Env, before map[string]string, except ...string) {
	t.Helper()
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		after := everythingIn(t, e)
		for _, key := range except {
			delete(after, key)
		}
		assert.ElementsMatch(c, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		for key := range before {
			assert.Equal(c, before[key], after[key], key)
		}
	}, clusterWait, clusterEvery)
}

// Each mode beside a running Machine Config Operator, from its installation to its removal: of the operator's objects
// none is changed at any time.
func TestALifeBesideTheMachineConfigOperator(t *testing.T) {
	for _, c := range []struct {
		name      string
		mode      cluster.Mode
		args      []string
		namespace string
	}{
		{"an advisor, which is the default", cluster.Advisor, nil, cluster.AdvisorNamespace},
		{"a builder", cluster.Building, []string{"--mode", "builder"}, cluster.DefaultNamespace},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := kubetest.Start(t, kubetest.Options{ControllerManager: true})
			podsRun(t, e)
			machineConfigOperator(t, e)
			before := settled(t, e)
			kubeconfig := e.Kubeconfig(t)
			do := func(args ...string) (int, string, string) {
				t.Helper()
				return dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig}, args...)...)
			}
			must := func(args ...string) string {
				t.Helper()
				code, out, errs := do(args...)
				require.Equal(t, cli.ExitOK, code, errs)
				return out + errs
			}
			text := must(append([]string{"install", "--image", "r.test/all:1", "--replicas", "1"}, c.args...)...)
			assert.Contains(t, text, "is installed in namespace "+c.namespace+" in mode "+string(c.mode))
			assert.NotContains(t, text, "kinds defined", "they are the cluster's")
			now := everythingIn(t, e)
			for key, object := range before {
				assert.Equal(t, object, now[key], "%s is the cluster's own", key)
			}
			for key, object := range now {
				if c.mode == cluster.Advisor && strings.HasPrefix(key, "ValidatingAdmissionPolicy ") {
					assert.Contains(t, object, "'system:serviceaccount:dayone:dayone-controller'", "%s binds dayone alone", key)
				}
			}

			var s clusterinstall.Status
			require.NoError(t, json.Unmarshal([]byte(must("status", "-o", "json")), &s))
			assert.Equal(t, c.mode, s.Mode)
			assert.Equal(t, c.namespace, s.Namespace)
			assert.Len(t, s.Programs, 1, "no other builder is dayone's")
			assert.Contains(t, must("status"), "mode "+string(c.mode))
			for _, args := range [][]string{{"install", "--image", "r.test/all:1", "--mode", "full"},
				{"upgrade", "--mode", "full"}} {
				code, _, errs := do(args...)
				assert.Equal(t, cli.ExitFailed, code)
				assert.Contains(t, errs, "installed in mode "+string(c.mode)+", and an installation keeps its mode")
				assert.Contains(t, errs, "uninstall first")
			}
			must("install", "--image", "r.test/all:1", "--replicas", "1") // the mode is the installation's
			must("upgrade", "--image", "controller=r.test/all:2")
			var d appsv1.Deployment
			require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: c.namespace,
				Name: cluster.Controller}, &d))
			assert.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--mode="+string(c.mode))
			assert.Equal(t, "r.test/all:2", d.Spec.Template.Spec.Containers[0].Image)

			published(t, e, c.namespace)
			assert.Regexp(t, `True +Degraded +PoolsReport: pool worker: stuck`, must("status"))
			assert.Regexp(t, `NoImageYet +worker`, must("status"), "its MachineOSConfig opts it in")
			require.NoError(t, json.Unmarshal([]byte(must("status", "-o", "json")), &s))
			assert.Equal(t, "PoolsReport", s.Conditions[0].Reason)
			must("uninstall", "--yes")
			var left []string
			for key := range everythingIn(t, e) { // the namespace stays, as every namespace does
				if key == "Namespace /"+c.namespace || strings.HasPrefix(key, "ServiceAccount "+c.namespace+"/default") ||
					strings.HasSuffix(key, " "+c.namespace+"/kube-root-ca.crt") {
					if _, was := before[key]; !was {
						left = append(left, key)
					}
				}
			}
			same(t, e, before, left...)
		})
	}
}

// published is what the controllers leave in their namespace.
func published(t *testing.T, e *kubetest.Env, namespace string) {
	t.Helper()
	ours := map[string]string{cluster.LabelManagedBy: cluster.ManagedBy}
	list := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.StatusName, Labels: ours},
			Data: map[string]string{cluster.StatusConditions: `[{"type":"Degraded","status":"True",` +
				`"reason":"PoolsReport","lastTransitionTime":"2026-11-27T04:00:00Z",` +
				`"message":"pool worker: stuck"}]`}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.Controller}}}
	kept, err := mcobuild.Record{Build: "worker-1", Config: "worker", Pool: "worker"}.ConfigMap(namespace)
	require.NoError(t, err)
	list = append(list, kept)
	if namespace == cluster.AdvisorNamespace {
		list = append(list, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: "dayone-pool-worker", Labels: ours}})
	}
	for _, o := range list {
		require.NoError(t, e.Client.Create(t.Context(), o))
	}
}
