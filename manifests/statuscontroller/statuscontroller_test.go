package statuscontroller_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/statuscontroller"
)

// What controllers do is looked at this often and this long: a limit for machines that are very busy.
const (
	waitLimit = 2 * time.Minute
	waitEvery = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// world is a cluster in which the controller runs with its own rights alone.
type world struct {
	*kubetest.Env
	t       *testing.T
	o       statuscontroller.Options
	objects []*unstructured.Unstructured
	config  *rest.Config
	calls   *kubetest.Calls
	ended   chan error
	stop    func()
}

func newWorld(t *testing.T, mode cluster.Mode) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	e := kubetest.Start(t, kubetest.Options{
		CRDPaths: kubetest.APICRDs(t, "config/v1/*_clusterversions-Default", "config/v1/*_clusteroperators")})
	w := &world{Env: e, t: t, o: statuscontroller.Options{Namespace: mode.Namespace(), Mode: mode, Version: "v1"}}
	all, err := cluster.Objects(cluster.Options{Mode: mode, Images: cluster.Images{Controller: "c", Builder: "b"}})
	require.NoError(t, err)
	for _, o := range all {
		if o.GetKind() == "Namespace" || strings.HasPrefix(o.GetName(), "dayone-status") ||
			(o.GetKind() == "ServiceAccount" && o.GetName() == cluster.Controller) {
			w.objects = append(w.objects, o)
		}
	}
	if mode != cluster.Full {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}})
	}
	e.InstallRightsOf(t, w.objects)
	return w
}

func (w *world) start() {
	w.t.Helper()
	if w.calls == nil {
		w.config, w.calls = kubetest.Record(w.As(w.t, w.o.Namespace, cluster.Controller))
	}
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{Scheme: w.Scheme, Controller: kubetest.Controllers(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(w.t, err)
	require.NoError(w.t, statuscontroller.SetupWithManager(mgr, w.o))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.ended = make(chan error, 1)
	ended := w.ended
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = cancel
	w.t.Cleanup(cancel)
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Client.Create(w.t.Context(), o), o.GetName())
}

// is waits until both objects say the same of a condition.
func (w *world) is(kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var m corev1.ConfigMap
		var list []metav1.Condition
		key := types.NamespacedName{Namespace: w.o.Namespace, Name: cluster.StatusName}
		if !assert.NoError(c, w.Client.Get(context.Background(), key, &m)) ||
			!assert.NoError(c, json.Unmarshal([]byte(m.Data["conditions.json"]), &list)) {
			return
		}
		found := meta.FindStatusCondition(list, kind)
		if assert.NotNil(c, found) {
			assert.Equal(c, string(status)+" "+reason, string(found.Status)+" "+found.Reason)
		}
		var o configv1.ClusterOperator
		assert.NoError(c, w.Client.Get(context.Background(), types.NamespacedName{Name: "dayone"}, &o))
		text := ""
		for _, has := range o.Status.Conditions {
			if string(has.Type) == kind {
				text = string(has.Status) + " " + has.Reason
			}
		}
		assert.Equal(c, string(status)+" "+reason, text)
	}, waitLimit, waitEvery)
}

// justThese checks that the rights are those that are used. Two are not seen in requests: client-go streams a list
// where the server can, and an older server needs the right; a server asks itself for the right to create when an
// apply makes an object.
func (w *world) justThese() {
	w.t.Helper()
	w.stop()
	require.NoError(w.t, <-w.ended)
	objects := make([]*unstructured.Unstructured, 0, len(w.objects))
	for _, o := range w.objects {
		o = o.DeepCopy()
		rules, _ := o.Object["rules"].([]any)
		for _, r := range rules {
			rule, ok := r.(map[string]any)
			require.True(w.t, ok)
			resources, _ := rule["resources"].([]any)
			verbs, _ := rule["verbs"].([]any)
			rule["verbs"] = slices.DeleteFunc(verbs, func(v any) bool {
				return v == "list" || (v == "create" && slices.Contains(resources, any("configmaps")))
			})
		}
		objects = append(objects, o)
	}
	w.calls.JustThese(w.t, objects, w.o.Namespace, cluster.Controller)
}

func deployment(namespace, name string, labels map[string]string) *appsv1.Deployment {
	app := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "r.test/c:1"}}}}}}
}

var ours = map[string]string{cluster.LabelManagedBy: cluster.ManagedBy}

func (w *world) scale(d *appsv1.Deployment, replicas string) {
	w.t.Helper()
	require.NoError(w.t, w.Client.Patch(w.t.Context(), d, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"replicas":`+replicas+`}}`))))
}

func TestAnInstallationInModeFull(t *testing.T) {
	w := newWorld(t, cluster.Full)
	version := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Spec: configv1.ClusterVersionSpec{ClusterID: "5a8b2c9c-6c7b-4d3f-9a6c-0f6a1c2d3e4f"}}
	settings := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"managementState": string(operatorv1.Managed)}}}
	settings.SetGroupVersionKind(operatorv1.GroupVersion.WithKind("MachineConfiguration"))
	settings.SetName(cluster.MachineConfiguration)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	builder := deployment(w.o.Namespace, cluster.Builder, ours)
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.o.Namespace, Name: cluster.Daemon, Labels: ours},
		Spec: appsv1.DaemonSetSpec{Selector: builder.Spec.Selector, Template: builder.Spec.Template}}
	server := agent.DeepCopy()
	server.Name = cluster.ConfigServer
	for _, o := range []client.Object{version, settings, pool, agent, server} {
		w.create(o)
	}
	w.start()
	w.is("Available", metav1.ConditionTrue, "AsExpected")
	w.is("Upgradeable", metav1.ConditionFalse, "InTheMachineConfigOperatorsPlace")
	w.is("Degraded", metav1.ConditionTrue, "ClusterVersionOverrideMissing")
	version.Spec.Overrides = []configv1.ComponentOverride{cluster.Override()}
	require.NoError(t, w.Client.Update(t.Context(), version))
	w.is("Degraded", metav1.ConditionFalse, "AsExpected")
	w.is("Progressing", metav1.ConditionFalse, "AsExpected")
	// A MachineOSConfig without a pool has nobody else to complain of it.
	lost := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "infra"}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "infra"},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "registry.example.com/os/infra:latest"}}
	w.create(lost)
	lost.Status.Conditions = []metav1.Condition{{Type: manifests.ConditionOptedIn, Status: metav1.ConditionFalse,
		Reason: "PoolMissing", Message: "m", LastTransitionTime: metav1.Now()}}
	require.NoError(t, w.Client.Status().Update(t.Context(), lost))
	w.is("Degraded", metav1.ConditionTrue, "PoolsReport")
	require.NoError(t, w.Client.Delete(t.Context(), lost))
	w.is("Degraded", metav1.ConditionFalse, "AsExpected")
	w.create(builder)
	w.is("Progressing", metav1.ConditionTrue, "RollingOut")
	pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolDegraded,
		Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "r", Message: "m"}}
	require.NoError(t, w.Client.Status().Update(t.Context(), pool))
	w.is("Degraded", metav1.ConditionTrue, "PoolsReport")

	// The Machine Config Operator comes back: it is said, dayone's builder and agents end, and every copy starts anew.
	operator := deployment(w.o.Namespace, "machine-config-operator", nil)
	w.create(operator)
	require.ErrorContains(t, <-w.ended, "the Machine Config Operator runs again (Deployment "+w.o.Namespace+
		"/machine-config-operator)")
	w.o.Waiting = true
	w.start()
	w.is("Available", metav1.ConditionFalse, "MachineConfigOperatorIsBack")
	w.is("Degraded", metav1.ConditionTrue, "MachineConfigOperatorIsBack")
	selector := func(want int) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			for _, d := range []*appsv1.DaemonSet{agent, server} {
				assert.NoError(c, w.Client.Get(context.Background(), client.ObjectKeyFromObject(d), d))
				assert.Len(c, d.Spec.Template.Spec.NodeSelector, want, d.Name)
			}
		}, waitLimit, waitEvery)
	}
	selector(1)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.True(c, apierrors.IsNotFound(w.Client.Get(context.Background(), client.ObjectKeyFromObject(builder), builder)))
	}, waitLimit, waitEvery)
	w.scale(operator, "0")
	require.ErrorContains(t, <-w.ended, "starts anew and works")
	w.o.Waiting = false
	w.start()
	w.is("Available", metav1.ConditionTrue, "AsExpected")
	selector(0)
	w.justThese()
}

func TestAnInstallationBesideTheOperator(t *testing.T) {
	w := newWorld(t, cluster.Advisor)
	w.start()
	w.is("Available", metav1.ConditionFalse, "MachineConfigOperatorAbsent")
	operator := deployment(cluster.DefaultNamespace, "machine-config-controller", nil)
	w.create(operator)
	w.is("Available", metav1.ConditionTrue, "AsExpected")
	w.is("Degraded", metav1.ConditionFalse, "AsExpected")
	w.is("Upgradeable", metav1.ConditionTrue, "AsExpected")
	other := deployment(cluster.DefaultNamespace, cluster.Controller, ours)
	w.create(other)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the ClusterOperator is left to one of the two
		var m corev1.ConfigMap
		assert.NoError(c, w.Client.Get(context.Background(), types.NamespacedName{Namespace: w.o.Namespace,
			Name: cluster.StatusName}, &m))
		assert.Contains(c, m.Data["conditions.json"], "TwoInstallations")
	}, waitLimit, waitEvery)
	require.NoError(t, w.Client.Delete(t.Context(), other))
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.o.Namespace, Name: "dayone-pool-worker",
		Labels: ours}, Data: map[string]string{"conditions.json": `[{"type":"PolicyDegraded","status":"True",` +
		`"reason":"Conflict","message":"another manager"}]`}}
	w.create(published)
	w.is("Degraded", metav1.ConditionTrue, "ControllersReport")
	published.Data["conditions.json"] = "none"
	require.NoError(t, w.Client.Update(t.Context(), published))
	w.is("Degraded", metav1.ConditionFalse, "AsExpected")
	w.justThese()
}
