package optin

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	ns = cluster.DefaultNamespace
	// What others do in the background is looked at this often and this long: a limit for machines that are very busy.
	waitLimit = 3 * time.Minute
	waitEvery = 50 * time.Millisecond
)

var shared kubetest.Shared

// The Deployment controller and the garbage collector are Kubernetes' own.
func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, kubetest.Options{ControllerManager: true}))
}

// world is a cluster with dayone's objects in which the controllers run as their own service account.
type world struct {
	*kubetest.Env
	t testing.TB
	// metrics are those of the copy that runs now.
	metrics *prometheus.Registry
	// writes counts requests of the controllers that change something, but for events.
	writes *atomic.Int64
	stop   func()
}

func newWorld(t *testing.T) *world { return newWorldOf(t) }

func newWorldOf(t testing.TB) *world {
	t.Helper()
	w := &world{Env: shared.Env(t), t: t, writes: new(atomic.Int64)}
	objects, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: "r.test/c:1",
		Builder: "r.test/b:1"}})
	require.NoError(t, err)
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			require.NoError(t, w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
				client.FieldOwner("test"), client.ForceOwnership), o.GetName())
		}
	}
	w.AwaitRights(t, objects)
	w.start()
	t.Cleanup(w.clear)
	return w
}

func (w *world) start() {
	cfg := w.As(w.t, ns, cluster.Controller)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, w.writes} })
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: w.Scheme, Cache: cache.Options{ByObject: CacheOptions(ns)},
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(w.t, err)
	w.metrics = prometheus.NewRegistry()
	require.NoError(w.t, Add(w.t.Context(), mgr, Options{BuilderImage: "registry.test:5000/builder:v1",
		Metrics: w.metrics}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		assert.NoError(w.t, <-ended)
	}
}

// seen is how many MachineOSConfigs the running copy has looked at.
func (w *world) seen() (n int) {
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() == "dayone_optin_machineosconfigs" {
			for _, m := range f.GetMetric() {
				n += int(m.GetGauge().GetValue())
			}
		}
	}
	return n
}

// clear leaves the shared cluster as it was.
func (w *world) clear() {
	w.stop()
	ctx := context.Background()
	for _, o := range []client.Object{&mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &mcfgv1.MachineConfigPool{},
		&operatorv1.MachineConfiguration{}} {
		require.NoError(w.t, w.Client.DeleteAllOf(ctx, o))
	}
	for _, o := range []client.Object{&appsv1.Deployment{}, &batchv1.Job{}, &corev1.Secret{}, &corev1.ConfigMap{}} {
		require.NoError(w.t, w.Client.DeleteAllOf(ctx, o, client.InNamespace(ns),
			client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	w.absent(&appsv1.Deployment{}, ns, cluster.Builder)
	for namespace, name := range map[string]string{cluster.PullSecretNamespace: cluster.PullSecretName,
		cluster.EntitlementNamespace: cluster.EntitlementName} {
		require.NoError(w.t, client.IgnoreNotFound(w.Client.Delete(ctx, secret(namespace, name, ""))))
	}
}

type counting struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

func secret(namespace, name, password string) *corev1.Secret {
	raw, _ := json.Marshal(
		map[string]any{"auths": map[string]any{"registry.example.test": map[string]string{"username": "u",
			"password": password}}})
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: raw}}
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		require.NoError(w.t, w.Client.Create(context.Background(), o), o.GetName())
	}
}

func (w *world) delete(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		require.NoError(w.t, w.Client.Delete(context.Background(), o,
			client.PropagationPolicy(metav1.DeletePropagationBackground)), o.GetName())
	}
}

func (w *world) get(c *assert.CollectT, o client.Object, namespace, name string) bool {
	return assert.NoError(c, w.Client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, o))
}

func (w *world) eventually(what func(c *assert.CollectT)) {
	w.t.Helper()
	require.EventuallyWithT(w.t, what, waitLimit, waitEvery)
}

func (w *world) absent(o client.Object, namespace, name string) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		err := w.Client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, o)
		assert.True(c, apierrors.IsNotFound(err), "%T %s: %v", o, name, err)
	})
}

func pool(name string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// optedIn waits until the MachineOSConfig's condition has the reason.
func (w *world) optedIn(name, reason string) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		var config mcfgv1.MachineOSConfig
		w.get(c, &config, "", name)
		condition := meta.FindStatusCondition(config.Status.Conditions, manifests.ConditionOptedIn)
		if assert.NotNil(c, condition) {
			assert.Equal(c, reason, condition.Reason)
			assert.Equal(c, reason == reasonOptedIn, condition.Status == metav1.ConditionTrue)
			assert.Equal(c, config.Generation, condition.ObservedGeneration)
		}
	})
}

// builderIs waits until the MachineConfiguration says where the builder is.
func (w *world) builderIs(p phase, message string) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		var mc operatorv1.MachineConfiguration
		w.get(c, &mc, "", cluster.MachineConfiguration)
		condition := meta.FindStatusCondition(mc.Status.Conditions, conditionBuilderProgressing)
		if assert.NotNil(c, condition) {
			assert.Equal(c, string(p), condition.Reason)
			assert.Contains(c, condition.Message, message)
			assert.Equal(c, p == phaseStarting || p == phaseStopping || p == phaseReplacing,
				condition.Status == metav1.ConditionTrue)
			assert.Equal(c, p == phaseRunning,
				meta.IsStatusConditionTrue(mc.Status.Conditions, manifests.ConditionBuilderAvailable))
			assert.Equal(c, p == phaseBlocked, meta.IsStatusConditionTrue(mc.Status.Conditions, conditionBuilderDegraded))
		}
	})
}

// podsRun stands in for the kubelet: every pod of the builder is ready.
func (w *world) podsRun() {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		var pods corev1.PodList
		assert.NoError(c, w.Client.List(context.Background(), &pods, client.InNamespace(ns),
			client.MatchingLabels{"app.kubernetes.io/name": cluster.Builder}))
		assert.NotEmpty(c, pods.Items)
		for i := range pods.Items {
			pods.Items[i].Status.Phase = corev1.PodRunning
			pods.Items[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.Now()}}
			assert.NoError(c, w.Client.Status().Update(context.Background(), &pods.Items[i]))
		}
	})
}

// podsEnd stands in for the kubelet, too: pods that are told to end are gone.
func (w *world) podsEnd() {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		var pods corev1.PodList
		assert.NoError(c, w.Client.List(context.Background(), &pods, client.InNamespace(ns)))
		for i := range pods.Items {
			assert.NoError(c, client.IgnoreNotFound(w.Client.Delete(context.Background(), &pods.Items[i],
				client.GracePeriodSeconds(0))))
		}
		assert.Empty(c, pods.Items)
	})
}

func machineOSBuild(name, config string) *mcfgv1.MachineOSBuild {
	return &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig:         mcfgv1.MachineConfigReference{Name: "rendered-" + config + "-1"},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: config},
		RenderedImagePushSpec: "registry.example.test/os/image:latest"}}
}

func buildMeta(name, pool string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{manifests.LabelEphemeralBuildObject: "",
		manifests.LabelTargetPool: pool}}
}

func buildJob(name, pool string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: buildMeta(name, pool),
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "build", Image: "r.test/b:1"}}}}}}
}

func builderLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster.Builder}}
}
