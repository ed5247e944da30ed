package failurecontroller_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/build/failurecontroller"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, kubetest.Options{}))
}

const (
	limit = 2 * time.Minute
	every = 50 * time.Millisecond
)

// kubelet stands in for a node's: the API server asks it for logs. Like the real one it answers 404 for pods that it
// does not have, and goes on with a log that is followed until the container ends.
type kubelet struct {
	mu   sync.Mutex
	logs map[string]string        // POD/CONTAINER
	open map[string]chan struct{} // closed when the container ends
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/containerLogs/"), "/")
	if len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	k.mu.Lock()
	text, found := k.logs[parts[1]+"/"+parts[2]]
	end := k.open[parts[1]+"/"+parts[2]]
	k.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(text))
	if end != nil && r.URL.Query().Get("follow") == "true" {
		w.(http.Flusher).Flush()
		select {
		case <-end:
			k.mu.Lock()
			text = strings.TrimPrefix(k.logs[parts[1]+"/"+parts[2]], text)
			k.mu.Unlock()
			_, _ = w.Write([]byte(text))
		case <-r.Context().Done():
		}
	}
}

// world is an API server with what MCO's builder leaves in it.
type world struct {
	t       *testing.T
	env     *kubetest.Env
	kubelet *kubelet
	objects []*unstructured.Unstructured
	// namespace is where dayone is installed.
	namespace string
}

func newWorld(t *testing.T) *world { return newWorldIn(t, shared.Env(t), cluster.Advisor) }

// newWorldIn is a cluster with an installation in a mode.
func newWorldIn(t *testing.T, env *kubetest.Env, mode cluster.Mode) *world {
	image := "example.com/dayone/program@sha256:" + strings.Repeat("0", 64)
	objects, err := cluster.Objects(cluster.Options{Mode: mode, Images: cluster.Images{Controller: image,
		Builder: image}})
	require.NoError(t, err)
	w := &world{t: t, env: env, objects: objects, namespace: mode.Namespace(),
		kubelet: &kubelet{logs: map[string]string{}, open: map[string]chan struct{}{}}}
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: failurecontroller.MCONamespace}})
	for _, o := range objects {
		if k := o.GetKind(); k == "Namespace" || k == "ServiceAccount" || strings.HasPrefix(k, "ValidatingAdmission") {
			w.make(o.DeepCopy())
		}
	}
	w.env.InstallRightsOf(t, objects)
	server := httptest.NewTLSServer(w.kubelet)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node()}}
	w.make(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: u.Hostname()}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	require.NoError(t, w.env.Client.Status().Update(t.Context(), n))
	return w
}

func (w *world) node() string { return "node-" + strings.ToLower(w.t.Name()) }

func (w *world) make(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, client.IgnoreAlreadyExists(w.env.Client.Create(w.t.Context(), o)), "%T %s", o, o.GetName())
}

// start runs the controller with just its rights until stop or the end of the test.
func (w *world) start(o failurecontroller.Options) (stop func(), calls *kubetest.Calls) {
	w.t.Helper()
	config, calls := kubetest.Record(w.env.As(w.t, w.namespace, "dayone-controller"))
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.env.Scheme, Controller: kubetest.Controllers(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: failurecontroller.CacheOptions()}})
	require.NoError(w.t, err)
	o.Namespace, o.Snapshot = w.namespace, 100*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(w.t, failurecontroller.Add(ctx, mgr, o))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.t.Cleanup(stop)
	return stop, calls
}

// opt makes a pool with a MachineOSConfig, as an administrator does.
func (w *world) opt(pool, containerfile string) *mcfgv1.MachineOSConfig {
	w.t.Helper()
	w.make(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineConfigPoolSpec{
		Configuration: mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: corev1.ObjectReference{
			Name: "rendered-" + pool + "-1"}}}})
	c := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "registry.example.com/os/image:latest",
		Containerfile:           []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: containerfile}}}}
	w.make(c)
	return c
}

// build does what MCO does when it begins one: MachineOSBuild, Job, and the annotation that names the build.
func (w *world) build(c *mcfgv1.MachineOSConfig, name string) *mcfgv1.MachineOSBuild {
	w.t.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: machineosbuild.Labels(c.Name, c.Name, "rendered-"+c.Name+"-1")}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig:         mcfgv1.MachineConfigReference{Name: "rendered-" + c.Name + "-1"},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: c.Name},
		RenderedImagePushSpec: "registry.example.com/os/image:" + mcfgv1.ImageTagFormat(name)}}
	w.make(b)
	w.annotate(c, map[string]any{manifests.AnnotationCurrentBuild: name, manifests.AnnotationRebuild: nil})
	labels := map[string]string{manifests.LabelEphemeralBuildObject: "", manifests.LabelOnClusterLayering: "",
		manifests.LabelMachineOSConfig: c.Name, manifests.LabelMachineOSBuild: name, manifests.LabelTargetPool: c.Name,
		manifests.LabelRenderedMachineConfig: "rendered-" + c.Name + "-1"}
	retries := int32(3)
	w.make(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: failurecontroller.MCONamespace, Name: "build-" + name,
		Labels: labels, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b,
			mcfgv1.SchemeGroupVersion.WithKind("MachineOSBuild"))}},
		Spec: batchv1.JobSpec{BackoffLimit: &retries, Template: corev1.PodTemplateSpec{Spec: podSpec("")}}})
	return b
}

func podSpec(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
		InitContainers: []corev1.Container{{Name: "image-build", Image: "mco"}},
		Containers:     []corev1.Container{{Name: "create-digest-configmap", Image: "mco"}}}
}

// pod makes one as the Job controller does, and says that its build runs.
func (w *world) pod(build, name, log string) *corev1.Pod {
	w.t.Helper()
	w.kubelet.mu.Lock()
	w.kubelet.logs[name+"/image-build"], w.kubelet.open[name+"/image-build"] = log, make(chan struct{})
	w.kubelet.mu.Unlock()
	job := &batchv1.Job{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Namespace: failurecontroller.MCONamespace,
		Name: "build-" + build}, job))
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: failurecontroller.MCONamespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job,
			batchv1.SchemeGroupVersion.WithKind("Job"))},
		Labels: map[string]string{batchv1.JobNameLabel: "build-" + build}}, Spec: podSpec(w.node())}
	w.make(p)
	now := metav1.Now()
	p.Status.Phase = corev1.PodPending
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "image-build", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), p))
	return p
}

// fail ends a pod as the kubelet does.
func (w *world) fail(p *corev1.Pod, more string) {
	w.t.Helper()
	key := p.Name + "/image-build"
	w.kubelet.mu.Lock()
	w.kubelet.logs[key] += more
	end := w.kubelet.open[key]
	delete(w.kubelet.open, key)
	w.kubelet.mu.Unlock()
	if end != nil {
		close(end)
	}
	p.Status.Phase = corev1.PodFailed
	p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 1, Reason: "Error", Message: more, FinishedAt: metav1.Now()}}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), p))
}

// move writes the state of a build as MCO does.
func (w *world) move(b *mcfgv1.MachineOSBuild, s machineosbuild.State) {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(b), b))
	require.NoError(w.t, machineosbuild.Move(b, s, machineosbuild.Cause{}, time.Now().Add(time.Second)))
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), b))
}

func (w *world) annotate(c *mcfgv1.MachineOSConfig, notes map[string]any) {
	w.t.Helper()
	raw := marshal(w.t, map[string]any{"metadata": map[string]any{"annotations": notes}})
	require.NoError(w.t, w.env.Client.Patch(w.t.Context(), c, client.RawPatch("application/merge-patch+json", raw)))
}

// destroy deletes a build with its Job and pods, as MCO does when the next one begins.
func (w *world) destroy(b *mcfgv1.MachineOSBuild, pods ...*corev1.Pod) {
	w.t.Helper()
	zero := client.GracePeriodSeconds(0)
	for _, p := range pods {
		w.kubelet.mu.Lock()
		delete(w.kubelet.logs, p.Name+"/image-build")
		w.kubelet.mu.Unlock()
		require.NoError(w.t, w.env.Client.Delete(w.t.Context(), p, zero))
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: failurecontroller.MCONamespace, Name: "build-" + b.Name}}
	require.NoError(w.t, client.IgnoreNotFound(w.env.Client.Delete(w.t.Context(), job,
		client.PropagationPolicy(metav1.DeletePropagationBackground))))
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(), b))
}

// record waits until the record of a build is as wanted.
func (w *world) record(build string, is func(c *assert.CollectT, r mcobuild.Record, log string)) mcobuild.Record {
	w.t.Helper()
	var r mcobuild.Record
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		m := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: w.namespace, Name: mcobuild.RecordName(build)}
		if !assert.NoError(c, w.env.Client.Get(w.t.Context(), key, m)) {
			return
		}
		var err error
		r, err = mcobuild.Parse(m)
		require.NoError(w.t, err)
		log, err := mcobuild.Unpack(r.Log)
		require.NoError(w.t, err)
		is(c, r, log)
	}, limit, every)
	return r
}
