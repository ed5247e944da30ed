package rendercontroller

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
)

const (
	// What the controller does in the background is looked at this often and this long: a limit for machines that are very
	// busy.
	waitLimit = time.Minute
	waitEvery = 50 * time.Millisecond
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(shared.Main(m, kubetest.Options{}))
}

// versions are those of the rendering test cases.
var versions = render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}

// world is a cluster with the controller running under its own service account.
type world struct {
	*kubetest.Env
	t    *testing.T
	stop func()
}

// start runs a controller until the function that it returns is called.
func (w *world) start(o Options) func() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.As(w.t, cluster.DefaultNamespace, cluster.Controller),
		ctrl.Options{Scheme: w.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(w.t, err)
	require.NoError(w.t, SetupWithManager(mgr, o))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		assert.NoError(w.t, <-ended)
	})
}

func newWorld(t *testing.T, keep int) *world {
	t.Helper()
	return newWorldOn(t, shared.Env(t), keep)
}

func newWorldOn(t *testing.T, env *kubetest.Env, keep int) *world {
	t.Helper()
	w := &world{Env: env, t: t}
	w.InstallRights(t)
	w.stop = w.start(Options{Versions: versions, Settle: -1, Keep: keep})
	t.Cleanup(func() {
		w.stop()
		for _, o := range []client.Object{&mcfgv1.MachineOSBuild{}, &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineConfigPool{},
			&mcfgv1.MachineConfig{}, &mcfgv1.ControllerConfig{},
			&mcfgv1.KubeletConfig{}, &mcfgv1.ContainerRuntimeConfig{}, &configv1.FeatureGate{}, &mcfgv1.OSImageStream{},
			&configv1.ImageDigestMirrorSet{},
			&configv1.ImageTagMirrorSet{}, &configv1.ClusterImagePolicy{},
			&configv1.Image{}, &configv1.APIServer{}, &operatorv1alpha1.ImageContentSourcePolicy{}, &corev1.Node{}} {
			require.NoError(t, w.Client.DeleteAllOf(context.Background(), o))
		}
	})
	return w
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		require.NoError(w.t, w.Client.Create(context.Background(), o), o.GetName())
	}
}

func (w *world) pool(c require.TestingT, name string) *mcfgv1.MachineConfigPool {
	var p mcfgv1.MachineConfigPool
	require.NoError(c, w.Client.Get(context.Background(), client.ObjectKey{Name: name}, &p))
	return &p
}

// rendered waits until the pool's config satisfies and returns its name.
func (w *world) rendered(pool string, satisfies func(name string) bool) string {
	w.t.Helper()
	var name string
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		p := w.pool(c, pool)
		name = p.Spec.Configuration.Name
		assert.True(c, name != "" && satisfies(name), "%s %v", name, p.Status.Conditions)
	}, waitLimit, waitEvery)
	return name
}

func whatever(string) bool { return true }

func role(name string) map[string]string { return map[string]string{manifests.LabelRole: name} }

func machineConfig(name, pool, argument string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: role(pool)},
		Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{argument}}}
}

func newPool(name string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role(name)}}}
}

func (w *world) condition(pool string, status corev1.ConditionStatus, message string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		conditions := w.pool(c, pool).Status.Conditions
		at := slices.IndexFunc(conditions, func(x mcfgv1.MachineConfigPoolCondition) bool {
			return x.Type == mcfgv1.MachineConfigPoolRenderDegraded
		})
		if assert.GreaterOrEqual(c, at, 0) {
			assert.Equal(c, status, conditions[at].Status)
			assert.Contains(c, conditions[at].Message, message)
		}
	}, waitLimit, waitEvery)
}

// objects are what a directory holds, as one would apply it.
func objects(set *manifests.Set) []client.Object {
	var out []client.Object
	add := func(o client.Object) { out = append(out, o) }
	for _, i := range set.ControllerConfigs {
		// What the API demands and rendering does not read; the cases leave it away.
		spec := &i.Object.Spec
		spec.RootCAData, spec.KubeAPIServerServingCAData, spec.Images = []byte("ca"), []byte("ca"),
			map[string]string{"none": "none"}
		spec.IPFamilies = mcfgv1.IPFamiliesIPv4
		kind := func(name string) metav1.TypeMeta {
			return metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: name}
		}
		spec.DNS = &configv1.DNS{TypeMeta: kind("DNS")}
		spec.Infra = &configv1.Infrastructure{TypeMeta: kind("Infrastructure"), Status: configv1.InfrastructureStatus{
			ControlPlaneTopology:   configv1.HighlyAvailableTopologyMode,
			InfrastructureTopology: configv1.HighlyAvailableTopologyMode}}
		add(i.Object)
	}
	for _, i := range set.FeatureGates {
		add(i.Object)
	}
	for _, i := range set.OSImageStreams {
		add(i.Object)
	}
	for _, i := range set.KubeletConfigs {
		add(i.Object)
	}
	for _, i := range set.ContainerRuntimeConfigs {
		add(i.Object)
	}
	for _, i := range set.IDMSs {
		add(i.Object)
	}
	for _, i := range set.ITMSs {
		add(i.Object)
	}
	for _, i := range set.ICSPs {
		add(i.Object)
	}
	for _, i := range set.Images {
		add(i.Object)
	}
	for _, i := range set.ClusterImagePolicies {
		add(i.Object)
	}
	for _, i := range set.APIServers {
		add(i.Object)
	}
	for _, i := range slices.Backward(set.MachineConfigs) { // in another order than bootstrap read them
		add(i.Object)
	}
	for _, i := range set.MachineOSConfigs {
		add(i.Object)
	}
	for _, i := range set.Pools {
		add(i.Object)
	}
	return out
}

// apply posts an object as its manifest says it.
func (w *world) apply(o client.Object) {
	w.t.Helper()
	gvks, _, err := w.Scheme.ObjectKinds(o)
	require.NoError(w.t, err)
	o.GetObjectKind().SetGroupVersionKind(gvks[0])
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(w.t, err)
	raw := &unstructured.Unstructured{Object: content}
	status := content["status"]
	require.NoError(w.t, w.Client.Create(context.Background(), raw), o.GetName())
	if kind := gvks[0].Kind; kind == "FeatureGate" || kind == "OSImageStream" { // as the cluster's operators do
		raw.Object["status"] = status
		require.NoError(w.t, w.Client.Status().Update(context.Background(), raw), o.GetName())
	}
}

// TestSameBytesAsBootstrap renders directories as bootstrap does, posts the same objects to a real API
// server and compares name and spec of what the controller writes there.
func TestSameBytesAsBootstrap(t *testing.T) {
	for _, name := range []string{"a-layered-pool", "a-custom-pool-inherits-an-image", "mirror-sets-and-image-settings",
		"kubelet-and-runtime-settings", "kubelet-tls-and-sizing", "kubelets-with-the-apiservers-tls-profile",
		"a-later-machineconfig-without-contents-keeps-a-packed-file-packed", "runc-under-an-image-of-its-own",
		"a-stream-by-a-pools-name", "a-stream-by-default", "a-layered-pool-on-the-workers-stream",
		"image-policies", "image-policies-and-a-policy-of-the-admins"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("..", "render", "testdata", name, "in")
			set, err := manifests.ReadDir(dir, manifests.ReadOptions{})
			require.NoError(t, err)
			bootstrap, err := render.Render(set, render.Options{Versions: versions})
			require.NoError(t, err)
			w := newWorld(t, 0)
			for _, o := range objects(set) {
				w.apply(o)
			}
			for _, want := range bootstrap.Configs {
				pool := want.OwnerReferences[0].Name
				got := w.rendered(pool, func(n string) bool { return n == want.Name })
				var there mcfgv1.MachineConfig
				require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: got}, &there))
				assert.Equal(t, want.Annotations, there.Annotations)
				assert.Equal(t, string(specOf(t, want)), string(specOf(t, &there)))
				w.condition(pool, corev1.ConditionFalse, "")
			}
		})
	}
}

func specOf(t *testing.T, c *mcfgv1.MachineConfig) []byte {
	t.Helper()
	raw, err := manifests.Marshal(c.Spec)
	require.NoError(t, err)
	return bytes.TrimSpace(raw)
}

func TestAPoolFollowsItsMachineConfigs(t *testing.T) {
	w := newWorld(t, 0)
	w.create(machineConfig("50-a", "blue", "a=1"), newPool("blue"), newPool("green"))
	first := w.rendered("blue", whatever)
	w.condition("blue", corev1.ConditionFalse, "")
	w.condition("green", corev1.ConditionTrue, "selects no MachineConfig")
	assert.Empty(t, w.pool(t, "green").Spec.Configuration.Name)

	w.create(machineConfig("60-b", "blue", "b=1"), machineConfig("60-c", "green", "c=1"))
	second := w.rendered("blue", func(n string) bool { return n != first })
	w.condition("green", corev1.ConditionFalse, "")
	bad := machineConfig("70-bad", "blue", "d=1")
	bad.Spec.KernelType = "fast"
	w.create(bad)
	w.condition("blue", corev1.ConditionTrue, `kernel type "fast" is not known`)
	assert.Equal(t, second, w.pool(t, "blue").Spec.Configuration.Name, "nodes keep what they have")
	w.condition("green", corev1.ConditionFalse, "")
	require.NoError(t, w.Client.Delete(t.Context(), bad))
	w.condition("blue", corev1.ConditionFalse, "")

	var config mcfgv1.MachineConfig
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: second}, &config))
	config.Spec.KernelArguments = []string{"somebody=else"}
	require.NoError(t, w.Client.Update(t.Context(), &config))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, w.Client.Get(t.Context(), client.ObjectKey{Name: second}, &config))
		assert.Equal(c, []string{"a=1", "b=1"}, config.Spec.KernelArguments)
	}, waitLimit, waitEvery)
	require.NoError(t, w.Client.Delete(t.Context(), &config))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, w.Client.Get(t.Context(), client.ObjectKey{Name: second}, &config), "it comes back")
	}, waitLimit, waitEvery)
}
