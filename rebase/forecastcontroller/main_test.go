package forecastcontroller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/forecastcontroller"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, kubetest.Options{}))
}

const (
	// soon is how long something may take on a busy machine, often how often is looked.
	soon  = time.Minute
	often = 50 * time.Millisecond
)

// rights are those of an advisor's installation.
func rights(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Advisor,
		Images: cluster.Images{Controller: "example.com/dayone/program@sha256:" + strings.Repeat("0", 64)}})
	require.NoError(t, err)
	return objects
}

var install sync.Once

// world is a cluster with MCO's objects, and the advisor under its service account.
type world struct {
	testing.TB
	env     *kubetest.Env
	calls   *kubetest.Calls
	metrics *prometheus.Registry
	// stopped ends the advisor that was started last.
	stopped func()
}

func newWorld(t testing.TB) *world {
	env := shared.Env(t)
	install.Do(func() {
		// MCO's own namespace is there before dayone is.
		require.NoError(t, env.Client.Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}}))
		env.InstallRightsOf(t, rights(t))
	})
	w := &world{TB: t, env: env}
	// The type would send lists that are not there as null, which the API refuses.
	settings := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"managementState": "Managed"}}}
	settings.SetGroupVersionKind(opv1.GroupVersion.WithKind("MachineConfiguration"))
	settings.SetName(cluster.MachineConfiguration)
	w.create(settings)
	t.Cleanup(func() {
		_ = env.Client.DeleteAllOf(context.Background(), &corev1.ConfigMap{}, client.InNamespace(cluster.AdvisorNamespace),
			client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy})
	})
	return w
}

// advise runs the advisor until the test ends, or until the function that it returns is called.
func (w *world) advise(change ...func(*rest.Config)) (stop func()) {
	w.Helper()
	config, calls := kubetest.Record(w.env.As(w, cluster.AdvisorNamespace, cluster.Controller))
	for _, c := range change {
		c(config)
	}
	w.calls, w.metrics = calls, prometheus.NewRegistry()
	strip := cache.TransformStripManagedFields()
	m, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.env.Scheme, Controller: kubetest.Controllers(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: forecastcontroller.CacheOptions(), DefaultTransform: strip}})
	require.NoError(w, err)
	require.NoError(w, forecastcontroller.SetupWithManager(m, forecastcontroller.Options{
		Namespace: cluster.AdvisorNamespace, Metrics: w.metrics}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); assert.NoError(w, <-ended) })
	w.Cleanup(stop)
	w.stopped = stop
	return stop
}

func (w *world) create(o client.Object) {
	w.Helper()
	require.NoError(w, w.env.Client.Create(w.Context(), o), "%T %s", o, o.GetName())
	w.Cleanup(func() { _ = w.env.Client.Delete(context.Background(), o) })
}

// config makes a rendered config of files "path=contents".
func (w *world) config(name string, files ...string) {
	w.Helper()
	w.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: ignition(files...)}}})
}

func ignition(files ...string) []byte {
	list := []any{}
	for _, f := range files {
		path, contents, _ := strings.Cut(f, "=")
		list = append(list, map[string]any{"path": path, "contents": map[string]any{"source": "data:," + contents}})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.5.0"},
		"storage": map[string]any{"files": list}})
	if err != nil {
		panic(err)
	}
	return raw
}

// pool makes a pool that is to have a config.
func (w *world) pool(name, config string, change ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	w.Helper()
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"pool-" + name: ""}},
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"for-" + name: ""}}}}
	p.Spec.Configuration.Name = config
	for _, c := range change {
		c(p)
	}
	w.create(p)
	return p
}

// node makes a node of a pool that is ready and has a config.
func (w *world) node(pool, name, config string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool-" + pool: ""},
		Annotations: map[string]string{manifests.AnnotationCurrentConfig: config,
			manifests.AnnotationDesiredConfig: config, manifests.AnnotationState: "Done"}}}
	w.create(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w, w.env.Client.Status().Update(w.Context(), n))
	return n
}

// change changes an object as the administrator, as somebody who writes under a name of his own.
func change[T client.Object](w *world, o T, f func(T)) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.env.Client.Get(w.Context(), client.ObjectKeyFromObject(o), o))
		f(o)
		require.NoError(c, w.env.Client.Update(w.Context(), o, client.FieldOwner("admin")))
	}, soon, often)
}

// data is what a ConfigMap of the advisor has; nil: it is not there.
func (w *world) data(name string) map[string]string {
	m := &corev1.ConfigMap{}
	if w.env.Client.Get(w.Context(), client.ObjectKey{Namespace: cluster.AdvisorNamespace, Name: name}, m) != nil {
		return nil
	}
	return m.Data
}

// says waits until what is published of a pool has all these texts in its keys.
func (w *world) says(pool string, texts ...string) map[string]string {
	w.Helper()
	var data map[string]string
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		data = w.data(forecast.ConfigMapName(pool))
		all := strings.Join([]string{data[forecast.KeySummary], data[forecast.KeyForecast], data[forecast.KeyNodes]}, "\n")
		for _, text := range texts {
			assert.Contains(c, all, text)
		}
	}, soon, often)
	return data
}

// series waits until a metric has a value: its labels are in the order of their names.
func (w *world) series(name string, value float64, labels ...string) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		families, err := w.metrics.Gather()
		require.NoError(c, err)
		found := fmt.Sprintf("no series %s %v", name, labels)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var has []string
				for _, l := range m.GetLabel() {
					has = append(has, l.GetValue())
				}
				if f.GetName() == name && strings.Join(has, " ") == strings.Join(labels, " ") {
					found = ""
					assert.InDelta(c, value, m.GetGauge().GetValue(), 0)
				}
			}
		}
		assert.Empty(c, found)
	}, soon, often)
}
