package releasecontroller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/e2e/releasejob"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/releasecontroller"
	"dayone.dev/dayone/manifests/render"
)

// What controllers do is looked at this often and this long: a limit for machines that are very busy.
const (
	waitLimit = 90 * time.Second
	waitEvery = 100 * time.Millisecond
)

// sendEnv makes this program the one of dayone's image: it seals a result.
const sendEnv = "DAYONE_TEST_SEND"

const ownImage = "r.test/dayone/controller:1"

func TestMain(m *testing.M) {
	if os.Getenv(sendEnv) != "" {
		key, err := os.ReadFile(strings.TrimPrefix(os.Args[3], "--key="))
		if err == nil {
			err = releasecontroller.Send(strings.TrimPrefix(os.Args[2], "--dir="), key, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// world is an OpenShift cluster whose Machine Config Operator is aside. Kubernetes' own controllers make the Jobs'
// pods; the node is a stand-in, and so is the release's program.
type world struct {
	*kubetest.Env
	t       *testing.T
	kubelet *releasejob.Kubelet
	objects []*unstructured.Unstructured
	config  *rest.Config
	calls   *kubetest.Calls
	stop    func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	e := kubetest.Start(t, kubetest.Options{ControllerManager: true, CRDPaths: kubetest.APICRDs(t,
		"config/v1/*_clusterversions-Default", "config/v1/*_clusteroperators",
		"config/v1/*_clusterimagepolicies", "config/v1/*_imagepolicies")})
	w := &world{Env: e, t: t, stop: func() {}}
	all, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: ownImage, Builder: "b"}})
	require.NoError(t, err)
	var others []*unstructured.Unstructured
	for _, o := range all {
		if o.GetKind() == "Namespace" || strings.HasPrefix(o.GetName(), "dayone-release") ||
			o.GetName() == cluster.Controller && o.GetKind() == "ServiceAccount" {
			w.objects = append(w.objects, o)
		}
		if o.GetName() == "dayone-events" || strings.HasPrefix(o.GetName(), "dayone-status") { // other controllers', too
			others = append(others, o)
		}
	}
	e.InstallRightsOf(t, slices.Concat(w.objects, others))
	w.config, w.calls = kubetest.Record(w.As(t, cluster.DefaultNamespace, cluster.Controller))
	w.kubelet = releasejob.Start(t, e.Client)
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	w.program(dir, cluster.Controller, fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", sendEnv, self))
	w.kubelet.Image(ownImage, dir)
	w.cluster(all)
	t.Cleanup(w.dump)
	return w
}

// dump shows what a test that failed has left.
func (w *world) dump() {
	if !w.t.Failed() {
		return
	}
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{},
		&corev1.EventList{}, &corev1.ConfigMapList{}} {
		if err := w.Client.List(context.Background(), list, client.InNamespace(cluster.DefaultNamespace)); err != nil {
			continue
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err == nil {
				w.t.Logf("%T %v %v %v %.600v", o, content["metadata"].(map[string]any)["name"], content["status"],
					content["message"], content["data"])
			}
			return err
		})
	}
}

func (w *world) program(dir, name, text string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	status := o.DeepCopyObject()
	require.NoError(w.t, w.Client.Create(w.t.Context(), o), o.GetName())
	switch s := status.(type) { // as the cluster's operators do
	case *configv1.FeatureGate:
		s.ResourceVersion = o.GetResourceVersion()
		require.NoError(w.t, w.Client.Status().Update(w.t.Context(), s))
	case *configv1.ClusterVersion:
		s.ResourceVersion = o.GetResourceVersion()
		require.NoError(w.t, w.Client.Status().Update(w.t.Context(), s))
	case *mcfgv1.OSImageStream:
		s.ResourceVersion = o.GetResourceVersion()
		require.NoError(w.t, w.Client.Status().Update(w.t.Context(), s))
	}
}

func osImage(version string) string {
	return fmt.Sprintf("r.test/os@sha256:%064x", []byte(version))
}

// images is what the release's ConfigMap says of its component images.
func images(version string) string {
	raw, _ := json.Marshal(map[string]string{"releaseVersion": version, "machineConfigOperator": "r.test/mco:" + version,
		"infraImage": "r.test/pod:" + version, "keepalivedImage": "r.test/keepalived:" + version,
		"kubeRbacProxy": "r.test/proxy:" + version})
	return string(raw)
}

// cluster makes what the cluster has when the operator has just been put aside.
func (w *world) cluster(all []*unstructured.Unstructured) {
	w.t.Helper()
	for _, o := range all { // it runs nowhere here; its image is read
		if o.GetKind() == "Deployment" && o.GetName() == cluster.Controller {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
			app := map[string]string{"app": "x"}
			d.Spec = appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: app},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: ownImage}}}}}
			w.create(d)
		}
	}
	gates := &configv1.FeatureGate{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	for _, v := range []string{"4.21.0", "4.21.1", "4.21.2"} {
		gates.Status.FeatureGates = append(gates.Status.FeatureGates, configv1.FeatureGateDetails{Version: v})
	}
	version := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Spec: configv1.ClusterVersionSpec{ClusterID: "5a8b2c9c-6c7b-4d3f-9a6c-0f6a1c2d3e4f"}}
	version.Status.Desired = configv1.Release{Version: "4.21.0", Image: "r.test/release:4.21.0"}
	version.Status.VersionHash, version.Status.AvailableUpdates = "x", []configv1.Release{}
	version.Status.History = []configv1.UpdateHistory{}
	streams := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "rhel-9"}}
	streams.Status = mcfgv1.OSImageStreamStatus{DefaultStream: "rhel-9", AvailableStreams: []mcfgv1.OSImageStreamSet{
		{Name: "rhel-9", OSImage: mcfgv1.ImageDigestFormat(osImage("4.21.0")),
			OSExtensionsImage: mcfgv1.ImageDigestFormat(osImage("4.21.0"))}}}
	controller := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
		Annotations: map[string]string{manifests.AnnotationGeneratedByVersion: "v4.21.0-7",
			manifests.AnnotationReleaseImageVersion: "4.21.0"}}, Spec: controllerSpec()}
	for _, o := range []client.Object{gates, version, streams, controller,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"},
			Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
				`{"auths":{"r.test":{"auth":"Y2FuYXJ5OmNhbmFyeQ=="}}}`)}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: "machine-config-operator-images"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: "machine-config-osimageurl"}}} {
		w.create(o)
	}
	yes := true
	for _, role := range []string{"master", "worker"} {
		w.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}})
		for name, entries := range map[string][]string{"00-" + role: {"/a", "/b"}, "01-" + role + "-kubelet": {"/kubelet"},
			"98-" + role + "-generated-kubelet": {"/kubelet"}} {
			m := releasecontroller.Config(w.t, name, role, "hash-4.21.0", entries...)
			if !strings.Contains(name, "-generated-") {
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(),
					Kind: "ControllerConfig", Name: controller.Name, UID: controller.UID, Controller: &yes}}
			}
			w.create(m)
		}
	}
	w.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra"}}) // a user's: MCO made nothing of it
	w.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-user", Labels: map[string]string{
		manifests.LabelRole: "worker"}}, Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{"mine"}}})
	w.release("4.21.0")
}

func controllerSpec() mcfgv1.ControllerConfigSpec {
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: name}
	}
	return mcfgv1.ControllerConfigSpec{RootCAData: []byte("ca"), KubeAPIServerServingCAData: []byte("ca"),
		IPFamilies: mcfgv1.IPFamiliesIPv4, DNS: &configv1.DNS{TypeMeta: kind("DNS")},
		Infra: &configv1.Infrastructure{TypeMeta: kind("Infrastructure"), Status: configv1.InfrastructureStatus{
			ControlPlaneTopology:   configv1.HighlyAvailableTopologyMode,
			InfrastructureTopology: configv1.HighlyAvailableTopologyMode}},
		InternalRegistryPullSecret: []byte("internal-canary"), ReleaseImage: "r.test/release:4.21.0",
		BaseOSContainerImage: osImage("4.21.0"), BaseOSExtensionsContainerImage: osImage("4.21.0"),
		Images: map[string]string{"machineConfigOperator": "r.test/mco:4.21.0", "apiServerWatcherKey": "r.test/mco:4.21.0",
			"infraImageKey": "r.test/pod:4.21.0", "keepalivedImage": "r.test/keepalived:4.21.0",
			"kubeRbacProxyImage": "r.test/proxy:4.21.0"}}
}

// says writes one of the release's ConfigMaps, as the cluster-version operator does.
func (w *world) says(name string, data map[string]string) {
	w.t.Helper()
	m := &corev1.ConfigMap{}
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, m))
	m.Data = data
	require.NoError(w.t, w.Client.Update(w.t.Context(), m))
}

func (w *world) saysImages(version string) {
	w.t.Helper()
	w.says("machine-config-operator-images", map[string]string{"images.json": images(version)})
}

func (w *world) release(version string) {
	w.t.Helper()
	w.saysImages(version)
	w.says("machine-config-osimageurl", map[string]string{"releaseVersion": version,
		"baseOSContainerImage": osImage(version), "baseOSExtensionsContainerImage": osImage(version), "osImageURL": ""})
}

// operator gives a release's image a program that stands in for machine-config-controller: it tells its version, takes
// only a ControllerConfig of that version and a whole pull secret, and leaves what it was prepared with.
func (w *world) operator(version, instead string) {
	w.t.Helper()
	dir, raw := w.t.TempDir(), "v"+version+"-7"
	configs := map[string]*mcfgv1.MachineConfig{}
	for _, role := range []string{"master", "worker", "infra"} {
		configs[role] = releasecontroller.Config(w.t, "rendered-"+role+"-"+version, role, "hash-"+version, "/a", "/new", "/b",
			"/kubelet", "new.service")
	}
	releasecontroller.WriteResult(w.t, filepath.Join(dir, "made"), raw, osImage(version), configs)
	w.program(dir, "machine-config-controller", `#!/bin/sh
echo "I1126 19:00:00.0 1 bootstrap.go:47] Version: `+raw+` (hash-`+version+`)" >&2
die() { echo "F1126 19:00:00.0 1 bootstrap.go:53] $1" >&2; exit 255; }
for arg; do case "$arg" in
  --manifest-dir=*) in=${arg#*=};; --dest-dir=*) out=${arg#*=};; --pull-secret=*) pull=${arg#*=};;
  --payload-version=`+version+`|bootstrap) ;; *) echo "Error: unknown flag: $arg" >&2; exit 1;;
esac; done
[ -n "$in" ] && [ -n "$out" ] || die "--dest-dir or --manifest-dir not set"
`+instead+`
grep -q '"machineconfiguration.openshift.io/generated-by-version":"`+raw+`"' "$in"/* || die "controller config of another version"
grep -q '"kind":"Secret"' "$pull" || die "no pull secret"
grep -q '"version":"`+version+`"' "$in"/* || die "no feature gates of this version"
if grep -rq -e 50-user -e aW50ZXJuYWwtY2FuYXJ5 "$in"; then die "it has what it must not have"; fi
cp -r "`+dir+`"/made/out/. "$out"
`)
	w.kubelet.Image("r.test/mco:"+version, dir)
}

// start runs the controller with its own rights.
func (w *world) start(config *rest.Config) {
	w.t.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.Scheme, Controller: kubetest.Controllers(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(w.t, err)
	require.NoError(w.t, releasecontroller.SetupWithManager(mgr, releasecontroller.Options{
		Namespace: cluster.DefaultNamespace, Idle: 200 * time.Millisecond, Busy: waitEvery, Retry: 2 * time.Second}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		<-ended
	}
	w.t.Cleanup(func() { cancel() })
}

// is waits until the ConfigMap says something of a condition.
func (w *world) is(kind string, status metav1.ConditionStatus, reason, says string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var m corev1.ConfigMap
		var list []metav1.Condition
		key := client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "dayone-release"}
		if !assert.NoError(c, w.Client.Get(context.Background(), key, &m)) ||
			!assert.NoError(c, json.Unmarshal([]byte(m.Data["conditions.json"]), &list)) {
			return
		}
		if found := meta.FindStatusCondition(list, kind); assert.NotNil(c, found) {
			assert.Equal(c, string(status)+" "+reason, string(found.Status)+" "+found.Reason, found.Message)
			assert.Contains(c, found.Message, says)
			assert.NotContains(c, m.Data["conditions.json"], "canary")
		}
	}, waitLimit, waitEvery)
}

// tokens are those of the ControllerConfig and of MCO's MachineConfigs, each once.
func (w *world) tokens() []string {
	w.t.Helper()
	var controller mcfgv1.ControllerConfig
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: render.ControllerConfigName}, &controller))
	var configs mcfgv1.MachineConfigList
	require.NoError(w.t, w.Client.List(w.t.Context(), &configs))
	out := []string{controller.Annotations[manifests.AnnotationRelease]}
	for _, m := range configs.Items {
		if manifests.MadeByOperator(&m) {
			out = append(out, m.Annotations[manifests.AnnotationRelease])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// follows waits until the cluster has a release, and looks at all that it has of it.
func (w *world) follows(version string) {
	w.t.Helper()
	w.is("ReleaseProgressing", metav1.ConditionFalse, "AsExpected", "release "+version)
	w.is("ReleaseDegraded", metav1.ConditionFalse, "AsExpected", "release "+version)
	var controller mcfgv1.ControllerConfig
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: render.ControllerConfigName}, &controller))
	assert.Equal(w.t, version, controller.Annotations[manifests.AnnotationReleaseImageVersion])
	assert.Equal(w.t, "v"+version+"-7", controller.Annotations[manifests.AnnotationGeneratedByVersion])
	assert.Equal(w.t, osImage(version), controller.Spec.BaseOSContainerImage)
	assert.Equal(w.t, "r.test/keepalived:"+version, controller.Spec.Images["keepalivedImage"])
	assert.Equal(w.t, "internal-canary", string(controller.Spec.InternalRegistryPullSecret))
	tokens := w.tokens()
	require.Len(w.t, tokens, 1)
	assert.True(w.t, strings.HasPrefix(tokens[0], version+"-"), tokens)
	var streams mcfgv1.OSImageStream
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: "cluster"}, &streams))
	assert.Equal(w.t, osImage(version), string(streams.Status.AvailableStreams[0].OSImage))
}

// has is what a MachineConfig of the worker's has.
func (w *world) has(name string, want ...string) {
	w.t.Helper()
	var m mcfgv1.MachineConfig
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: name}, &m))
	assert.Equal(w.t, want, releasecontroller.EntriesOf(w.t, &m), name)
}

func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var jobs batchv1.JobList
	require.NoError(w.t, w.Client.List(w.t.Context(), &jobs))
	return slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return j.DeletionTimestamp != nil })
}

func TestAReleaseIsFollowed(t *testing.T) {
	w := newWorld(t)
	w.start(w.config)
	w.follows("4.21.0")
	assert.Empty(t, w.jobs(), "what the operator has left is taken as it is")
	w.has("00-worker", "hash-4.21.0/a", "hash-4.21.0/b")

	w.saysImages("4.21.1")
	w.is("ReleaseProgressing", metav1.ConditionTrue, "ReleaseHalfWritten", "between")
	w.release("4.21.1")
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseImageNotPulled", "r.test/mco:4.21.1")
	assert.Len(t, w.jobs(), 1)

	w.operator("4.21.1", `die "error running MCC[BOOTSTRAP]: no such template"`)
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseRenderFailed", "no such template")
	assert.Equal(t, 3, w.kubelet.Ran("r.test/mco:4.21.1"))
	assert.Len(t, w.tokens(), 1, "nothing was written")
	w.has("00-worker", "hash-4.21.0/a", "hash-4.21.0/b")

	w.operator("4.21.1", "") // what is tried again succeeds
	w.follows("4.21.1")
	w.has("00-worker", "hash-4.21.1/a", "hash-4.21.1/new", "hash-4.21.1/b", "new.service")
	w.has("01-worker-kubelet", "hash-4.21.1/kubelet")
	w.has("98-worker-generated-kubelet", "hash-4.21.1/kubelet")
	w.has("99-infra-generated-registries", "hash-4.21.1/a", "hash-4.21.1/new", "hash-4.21.1/b", "hash-4.21.1/kubelet",
		"new.service")
	assert.Equal(t, 4, w.kubelet.Ran("r.test/mco:4.21.1"), "three that failed, and one")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var secrets corev1.SecretList
		assert.NoError(c, w.Client.List(context.Background(), &secrets, client.InNamespace(cluster.DefaultNamespace)))
		assert.Empty(c, slices.DeleteFunc(secrets.Items, func(s corev1.Secret) bool {
			return !strings.HasPrefix(s.Name, "dayone-release")
		}), "nothing is left")
		assert.Empty(c, w.jobs())
	}, waitLimit, waitEvery)

	// A setting of the administrator's goes the same way.
	before := w.tokens()
	w.create(&mcfgv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})
	require.Eventually(t, func() bool { return !slices.Equal(before, w.tokens()) }, waitLimit, waitEvery)
	w.follows("4.21.1")

	w.stop()
	w.calls.JustThese(t, w.objects, cluster.DefaultNamespace, cluster.Controller)
}

// TestAnInterruptionLosesNothing ends the controller after each of its writes.
func TestAnInterruptionLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.start(w.config)
	w.follows("4.21.0")
	w.stop()
	w.operator("4.21.1", "")
	w.release("4.21.1")
	for lives := 1; ; lives++ {
		require.Less(t, lives, 60)
		done := func() bool { return len(w.tokens()) == 1 && strings.HasPrefix(w.tokens()[0], "4.21.1-") }
		w.oneWrite(done)
		if done() {
			t.Logf("%d lives", lives)
			break
		}
	}
	w.start(w.config)
	w.follows("4.21.1")
	w.has("00-master", "hash-4.21.1/a", "hash-4.21.1/new", "hash-4.21.1/b", "new.service")
	w.stop()
}

// oneWrite lets the controller live for one write, what it says of itself apart, or until done.
func (w *world) oneWrite(done func() bool) {
	w.t.Helper()
	cut := rest.CopyConfig(w.config)
	var writes atomic.Int32
	cut.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") &&
				!strings.Contains(r.URL.Path, "configmaps/dayone-release") && writes.Add(1) > 1 {
				return nil, fmt.Errorf("the program was killed before %s %s", r.Method, r.URL.Path)
			}
			return next.RoundTrip(r)
		})
	})
	w.start(cut)
	require.Eventually(w.t, func() bool { return writes.Load() > 1 || done() }, waitLimit, waitEvery)
	w.stop()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWhatIsNotFollowed(t *testing.T) {
	w := newWorld(t)
	w.start(w.config)
	w.follows("4.21.0")
	before := w.tokens()
	w.says("machine-config-osimageurl", map[string]string{"releaseVersion": "4.21.1"})
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseMalformed", "baseOSContainerImage")
	w.release("4.20.9")
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseGoesBack", "dayone cluster uninstall")
	w.release("4.21.7")
	w.is("ReleaseProgressing", metav1.ConditionTrue, "FeatureGateOutstanding", "4.21.7")
	assert.Empty(t, w.jobs())

	// Its output is none.
	w.operator("4.21.1", "mkdir -p \"$out/machine-pools\" \"$out/machine-configs\" \"$out/controller-config\"; exit 0")
	w.release("4.21.1")
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseRenderFailed", "container send")
	first := w.jobs()
	require.Len(t, first, 1)
	assert.Equal(t, before, w.tokens())

	// The release changes while a Job runs.
	w.operator("4.21.2", "while :; do sleep 0.1; done")
	w.release("4.21.2")
	w.is("ReleaseProgressing", metav1.ConditionTrue, "ReleaseRendering", "4.21.2")
	w.operator("4.21.1", "")
	w.release("4.21.1")
	w.follows("4.21.1")
	w.stop()
}
