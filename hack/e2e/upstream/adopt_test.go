package upstream_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/openshift/loopback"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/nodestate"
)

// adopted is how long the real controllers may take on a busy machine.
const adopted = 5 * time.Minute

// clusterCRDs are the kinds that the real controllers watch beside those that dayone ships.
func clusterCRDs(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(out))
	var files []string
	for _, name := range []string{"config/v1/*_clusterversions-Default", "config/v1/*_infrastructures-Default",
		"config/v1/*_dnses-Default", "config/v1/*_schedulers-SelfManagedHA-Default", "config/v1/*_clusterimagepolicies",
		"config/v1/*_imagepolicies", "config/v1/*_proxies", "config/v1/*_networks-Default",
		"machineconfiguration/v1/*_internalreleaseimages-SelfManagedHA"} {
		group, file := filepath.Split(name)
		found, err := filepath.Glob(filepath.Join(dir, group, "zz_generated.crd-manifests", file+".crd.yaml"))
		require.NoError(t, err)
		require.Len(t, found, 1, name)
		files = append(files, found...)
	}
	// The controllers read this kind in a version that is not in our openshift/api yet.
	const later = "config/v1alpha1/zz_generated.crd-manifests/" +
		"0000_10_config-operator_01_criocredentialproviderconfigs-SelfManagedHA.crd.yaml"
	raw, err := os.ReadFile(filepath.Join(dir, later))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "criocredentialproviderconfigs.yaml")
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(raw, []byte("name: v1alpha1"), []byte("name: v1")), 0o600))
	return append(files, file)
}

// world is an API server with what the real controllers find in a cluster that has just been installed.
type world struct {
	t          *testing.T
	env        *kubetest.Env
	kubeconfig string
}

func newWorld(t *testing.T) *world { return newWorldWith(t, kubetest.Options{}) }

// newWorldWith is newWorld with more of Kubernetes.
func newWorldWith(t *testing.T, o kubetest.Options) *world {
	o.CRDPaths = clusterCRDs(t)
	env := kubetest.Start(t, o)
	w := &world{t: t, env: env, kubeconfig: env.Kubeconfig(t)}
	for _, n := range []string{cluster.DefaultNamespace, "openshift-config", "openshift-config-managed",
		"openshift-machine-api", "openshift-kube-apiserver-operator"} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	none := arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}}
	w.create(pullSecret())
	w.create(none.infrastructure())
	w.create(featureGate(false))
	w.create(dns())
	w.create(&configv1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	w.create(&configv1.Scheduler{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	w.create(&configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Spec: configv1.ClusterVersionSpec{ClusterID: "5a8b2c9c-6c7b-4d3f-9a6c-0f6a1c2d3e4f"}})
	// The type would send lists that are not there as null, which the API refuses.
	settings := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"managementState": string(operatorv1.Managed)}}}
	settings.SetGroupVersionKind(operatorv1.GroupVersion.WithKind("MachineConfiguration"))
	settings.SetName("cluster")
	w.create(settings)
	return w
}

// create makes an object, with its status if it has one.
func (w *world) create(o client.Object) {
	w.t.Helper()
	o.SetResourceVersion("")
	wanted := o.DeepCopyObject().(client.Object)
	require.NoError(w.t, w.env.Client.Create(w.t.Context(), o), "%T %s", o, o.GetName())
	switch wanted.(type) {
	case *configv1.Infrastructure, *configv1.FeatureGate:
		wanted.SetResourceVersion(o.GetResourceVersion())
		require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), wanted), "%T %s", o, o.GetName())
	}
}

// start runs one of the real controllers, as the administrator, until the test ends.
func (w *world) start(m mco, name string, args ...string) {
	w.t.Helper()
	w.startAs(w.kubeconfig, m, name, args...)
}

// output is what a program has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startAs runs one of the real controllers with the rights of a kubeconfig until the test ends.
func (w *world) startAs(kubeconfig string, m mco, name string, args ...string) *output {
	w.t.Helper()
	out := &output{}
	cmd := m.command(w.t, name, append([]string{"start"}, args...)...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+cluster.DefaultNamespace)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.t.Failed() {
			lines := strings.Split(out.String(), "\n")
			w.t.Logf("%s:\n%s", name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return out
}

// eventually waits until the cluster is as wanted, and says what it is when that does not come.
func (w *world) eventually(what string, is func(ctx context.Context) error) {
	w.t.Helper()
	var last error
	if !assert.Eventually(w.t, func() bool { last = is(w.t.Context()); return last == nil }, adopted,
		time.Second, what) {
		w.t.Fatalf("%s: %v", what, last)
	}
}

// post gives the cluster what its operator writes: pools, the ControllerConfig, and a MachineConfig for each image that
// was built before the cluster was there.
func (w *world) post(b bootstrapped) {
	w.t.Helper()
	set, err := manifests.ReadDir(b.dir, manifests.ReadOptions{})
	require.NoError(w.t, err)
	for _, c := range set.ControllerConfigs {
		config := c.Object
		config.Annotations[manifests.AnnotationReleaseImageVersion] = release
		gvk := func(kind string) metav1.TypeMeta {
			return metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: kind}
		}
		config.Spec.Infra.TypeMeta, config.Spec.DNS.TypeMeta = gvk("Infrastructure"), gvk("DNS")
		config.Spec.PullSecret = &corev1.ObjectReference{Namespace: "openshift-config", Name: "pull-secret"}
		config.Spec.ImageRegistryBundleData = []mcfgv1.ImageRegistryBundle{}
		config.Spec.ImageRegistryBundleUserData = []mcfgv1.ImageRegistryBundle{}
		w.create(config)
	}
	for _, p := range set.Pools {
		w.create(p.Object)
	}
	for _, m := range set.MachineOSConfigs {
		w.create(render.PreBuiltComponent(m.Object.Spec.MachineConfigPool.Name,
			m.Object.Annotations[manifests.AnnotationPreBuiltImage]))
	}
}

// give lets dayone give the cluster what it gives at the end of a bootstrap: MachineConfigs and MachineOSConfigs.
func (w *world) give(b bootstrapped) {
	w.t.Helper()
	set, err := manifests.ReadDir(b.dir, manifests.ReadOptions{})
	require.NoError(w.t, err)
	push := pullSecret()
	push.Name, push.Namespace = "push", cluster.DefaultNamespace
	give := &manifests.Set{MachineConfigs: set.MachineConfigs, MachineOSConfigs: set.MachineOSConfigs,
		Secrets: []manifests.Item[*corev1.Secret]{manifests.NewItem(push)}}
	require.NoError(w.t, loopback.Cluster{Kubeconfig: w.kubeconfig}.Give(w.t.Context(), give, nil))
}

// join makes a node that has booted a pool's rendered config and image, as dayone leaves it.
func (w *world) join(pool, config, image string) *corev1.Node {
	w.t.Helper()
	record := nodestate.Record{CurrentConfig: config, DesiredConfig: config, CurrentImage: image, DesiredImage: image,
		State: manifests.StateDone}
	patch, err := record.Patch(nil)
	require.NoError(w.t, err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pool + "-0",
		Labels: map[string]string{"node-role.kubernetes.io/" + pool: ""}, Annotations: nodestate.Apply(nil, patch)}}
	w.create(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), n))
	return n
}

// TestAdoption gives the real controllers, in a real API server, what a bootstrap with dayone leaves: they render the
// same names, take the images over without a build, and leave the nodes alone. A custom pool has no image here: MCO's
// bootstrap gives it kernel arguments that MCO in the cluster does not, so that its name cannot be kept.
func TestAdoption(t *testing.T) {
	m := run.mco(t)
	if testing.Short() {
		run.without(t, "needs a real kube-apiserver, which is left out with -short")
	}
	pools := []string{"master", "worker"}
	run.record(t, func() string {
		return fmt.Sprintf("%d pools: rendered names kept, images seeded, nodes left alone", len(pools))
	})
	plain := m.operator(t, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	files := users()
	delete(files, "99_mosc-infra.yaml")
	b := plain.with(t, files)
	dest, out, err := m.controller(t, b)
	require.NoError(t, err, out)
	names := map[string]string{}
	set, err := manifests.ReadDir(filepath.Join(dest, render.PoolsDir), manifests.ReadOptions{})
	require.NoError(t, err)
	for _, p := range set.Pools {
		names[p.Object.Name] = p.Object.Spec.Configuration.Name
	}

	w := newWorld(t)
	w.post(b)
	w.give(b)
	nodes := map[string]*corev1.Node{}
	for _, pool := range pools {
		nodes[pool] = w.join(pool, names[pool], image(pool+"-os"))
	}
	metrics := func() string { return fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)) }
	w.start(m, "machine-config-controller", "--templates", filepath.Join(string(m), "templates"),
		"--payload-version", release, "--metrics-listen-address", metrics(), "--kubeconfig", w.kubeconfig,
		"--streams-cache", t.TempDir())
	w.start(m, "machine-os-builder", "--metrics-listen-address", metrics())
	for _, pool := range pools {
		w.adopts(pool, names[pool])
	}
	w.leftAlone(nodes)
}

// adopts waits until the controllers have a pool as the bootstrap left it.
func (w *world) adopts(pool, config string) {
	w.t.Helper()
	w.eventually("pool "+pool+" is rendered", func(ctx context.Context) error {
		p := &mcfgv1.MachineConfigPool{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
			return err
		}
		if p.Spec.Configuration.Name != config {
			return fmt.Errorf("%s, and the bootstrap rendered %s", p.Spec.Configuration.Name, config)
		}
		return nil
	})
	w.eventually("the image of pool "+pool+" is seeded", func(ctx context.Context) error {
		c := &mcfgv1.MachineOSConfig{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: pool}, c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, manifests.ConditionSeeded) ||
			string(c.Status.CurrentImagePullSpec) != image(pool+"-os") {
			return fmt.Errorf("%+v", c.Status)
		}
		return nil
	})
	w.eventually("pool "+pool+" is updated", func(ctx context.Context) error {
		p := &mcfgv1.MachineConfigPool{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
			return err
		}
		if s := p.Status; s.MachineCount != 1 || s.UpdatedMachineCount != 1 || s.Configuration.Name != config {
			return fmt.Errorf("%d of %d nodes, %s", s.UpdatedMachineCount, s.MachineCount, s.Configuration.Name)
		}
		return nil
	})
}

// leftAlone checks that the controllers changed no node and built no image.
func (w *world) leftAlone(nodes map[string]*corev1.Node) {
	w.t.Helper()
	for pool, before := range nodes {
		n := &corev1.Node{}
		require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(before), n))
		for key, value := range before.Annotations {
			assert.Equal(w.t, value, n.Annotations[key], "%s of the node of pool %s", key, pool)
		}
		assert.False(w.t, n.Spec.Unschedulable, pool)
	}
	builds := &mcfgv1.MachineOSBuildList{}
	require.NoError(w.t, w.env.Client.List(w.t.Context(), builds))
	assert.Len(w.t, builds.Items, len(nodes))
	for _, b := range builds.Items {
		assert.Equal(w.t, "true", b.Labels[manifests.AnnotationPreBuiltImage], b.Name)
	}
}
