package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/e2e/releasejob"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/releasecontroller"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/registry/registrytest"
)

// sendEnv makes this program the one of dayone's image, which seals what the release's program has made.
const sendEnv = "DAYONE_TEST_SEND"

// send does that, by the arguments of the Job's container.
func send(args []string) error {
	key, err := os.ReadFile(strings.TrimPrefix(args[2], "--key="))
	if err != nil {
		return err
	}
	return releasecontroller.Send(strings.TrimPrefix(args[1], "--dir="), key, os.Stdout)
}

// followed is a cluster in mode full, whose release's program is the real one.
type followed struct {
	*kubetest.Env
	t    *testing.T
	m    mco
	next nextRelease
}

// nextRelease is what is followed: OS images, and with streams what the program needs to find them in a registry.
type nextRelease struct {
	os, extensions string
	pull           *corev1.Secret
	gate           *configv1.FeatureGate
	// trust is the registry's authority.
	trust []byte
	// streams is the cluster's; nil: the feature is off.
	streams *mcfgv1.OSImageStream
}

// nextImages are those of the release that is followed: others than the ones that the cluster was made with.
func nextImages() map[string]string {
	return map[string]string{"releaseVersion": release, "machineConfigOperator": image("mco-next"),
		"infraImage": image("pod-next"), "keepalivedImage": image("keepalived-next"), "corednsImage": image("coredns-next"),
		"haproxyImage": image("haproxy-next"), "baremetalRuntimeCfgImage": image("runtimecfg-next"),
		"kubeRbacProxy": image("proxy-next"), "dockerRegistryImage": image("registry-next")}
}

// TestReleaseFollowed lets dayone follow a release with the release's own machine-config-controller, and compares what
// it renders in the cluster with what that program renders of the same, the user's MachineConfigs included.
func TestReleaseFollowed(t *testing.T) {
	follow(t, nextRelease{os: image("os-next"), extensions: image("extensions-next"), pull: pullSecret(),
		gate: featureGate(false)})
}

// stream is the only one of the release, and its default.
const stream = "rhel-9"

// TestStreamsFollowed does the same where the release's program finds the OS images by the labels that they have in a
// registry, and a pool names its stream.
func TestStreamsFollowed(t *testing.T) {
	reg := registrytest.Start(t)
	ca, err := os.ReadFile(reg.CAFile)
	require.NoError(t, err)
	auth, err := os.ReadFile(reg.PullAuthFile)
	require.NoError(t, err)
	n := nextRelease{pull: pullSecret(), gate: featureGate(true), trust: ca}
	n.pull.Data[corev1.DockerConfigJsonKey] = auth
	n.os = pushLabelled(t, reg, "os", map[string]string{"containers.bootc": "1"})
	n.extensions = pushLabelled(t, reg, "extensions", map[string]string{"io.openshift.os.extensions": "true"})
	n.streams = &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: stream},
		Status: mcfgv1.OSImageStreamStatus{DefaultStream: stream, AvailableStreams: []mcfgv1.OSImageStreamSet{{
			Name: stream, OSImage: mcfgv1.ImageDigestFormat(image("os")),
			OSExtensionsImage: mcfgv1.ImageDigestFormat(image("extensions"))}}}}
	w := follow(t, n)
	var streams mcfgv1.OSImageStream
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &streams))
	assert.Equal(t, n.os, string(streams.Status.AvailableStreams[0].OSImage))
	assert.Equal(t, n.extensions, string(streams.Status.AvailableStreams[0].OSExtensionsImage))
}

// pushLabelled pushes an image without content that has the stream's label and others.
func pushLabelled(t *testing.T, reg *registrytest.Registry, repository string, labels map[string]string) string {
	t.Helper()
	labels["io.openshift.os.streamclass"] = stream
	img, err := mutate.Config(empty.Image, v1.Config{Labels: labels})
	require.NoError(t, err)
	at, err := name.NewTag(reg.Addr + "/" + repository + ":next")
	require.NoError(t, err)
	require.NoError(t, remote.Write(at, img, reg.Pusher(t)...))
	digest, err := img.Digest()
	require.NoError(t, err)
	return reg.Addr + "/" + repository + "@" + digest.String()
}

// follow lets dayone follow a release and compares each pool.
func follow(t *testing.T, n nextRelease) *followed {
	t.Helper()
	m := run.mco(t)
	run.record(t, func() string {
		return "3 pools: the specs that the release's own program gives, and the names of all but the custom one's"
	})
	b := m.operator(t, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	b = b.with(t, poolsOnly())
	plain, out, err := m.controller(t, b)
	require.NoError(t, err, out)
	set, err := manifests.ReadDir(b.dir, manifests.ReadOptions{})
	require.NoError(t, err)
	require.Len(t, set.ControllerConfigs, 1)
	set.ControllerConfigs[0].Object.Spec.AdditionalTrustBundle = n.trust

	// What the release's own program makes of the release's images and the user's MachineConfigs.
	next := set.ControllerConfigs[0].Object.DeepCopy()
	next.Spec.BaseOSContainerImage, next.Spec.BaseOSExtensionsContainerImage = n.os, n.extensions
	all := nextImages()
	next.Spec.Images = map[string]string{"machineConfigOperator": all["machineConfigOperator"],
		"apiServerWatcherKey": all["machineConfigOperator"], "infraImageKey": all["infraImage"],
		"kubeRbacProxyImage": all["kubeRbacProxy"]}
	for _, key := range []string{"keepalivedImage", "corednsImage", "haproxyImage", "baremetalRuntimeCfgImage",
		"dockerRegistryImage"} {
		next.Spec.Images[key] = all[key]
	}
	raw, err := manifests.Marshal(next)
	require.NoError(t, err)
	own := map[string]string{}
	for _, name := range []string{"99_master.yaml", "99_worker.yaml", "99_infra.yaml"} {
		own[name] = users()[name]
	}
	b2 := b.with(t, map[string]string{set.ControllerConfigs[0].Origin.File: string(raw)}).with(t, own)
	b2.pullSecret = object(t, filepath.Join(t.TempDir(), "pull.yaml"), n.pull)
	object(t, filepath.Join(b2.dir, "99_feature-gate.yaml"), n.gate)
	if n.streams != nil {
		object(t, filepath.Join(b2.dir, "99_streams.yaml"), n.streams)
		for _, p := range set.Pools {
			if p.Object.Name == "worker" {
				p.Object.Spec.OSImageStream.Name = stream
				object(t, filepath.Join(b2.dir, p.Origin.File), p.Object)
			}
		}
	}
	theirs, out, err := m.controller(t, b2)
	require.NoError(t, err, out)

	w := &followed{Env: kubetest.Start(t, kubetest.Options{ControllerManager: true,
		CRDPaths: kubetest.APICRDs(t, "config/v1/*_clusterversions-Default")}), t: t, m: m, next: n}
	w.images()
	w.cluster(set, components(t, plain), own)
	w.start()
	want, _ := result(t, theirs)
	require.Len(t, want.Pools, 3)
	for _, p := range want.Pools {
		theirs := read(t, theirs, p.Object.Spec.Configuration.Name)
		if p.Object.Name == "infra" {
			inCluster(t, theirs)
		}
		w.renders(p.Object.Name, theirs)
	}
	return w
}

// renders waits until a pool has a config of a name, and compares its content.
func (w *followed) renders(name string, theirs *mcfgv1.MachineConfig) {
	w.t.Helper()
	var got mcfgv1.MachineConfig
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var pool mcfgv1.MachineConfigPool
		var said corev1.ConfigMap
		_ = w.Client.Get(context.Background(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: "dayone-release"}, &said)
		require.NoError(c, w.Client.Get(context.Background(), client.ObjectKey{Name: name}, &pool))
		require.NoError(c, w.Client.Get(context.Background(), client.ObjectKey{Name: pool.Spec.Configuration.Name}, &got))
		assert.Equal(c, theirs.Spec.OSImageURL, got.Spec.OSImageURL, "%v %v", said.Data, pool.Status.Conditions)
		if theirs.Name != "" {
			assert.Equal(c, theirs.Name, got.Name, "%v %v", said.Data, pool.Status.Conditions)
		}
	}, 3*time.Minute, 200*time.Millisecond)
	assert.JSONEq(w.t, string(theirs.Spec.Config.Raw), string(got.Spec.Config.Raw))
	theirs.Spec.Config.Raw, got.Spec.Config.Raw = nil, nil
	assert.Equal(w.t, theirs.Spec, got.Spec)
}

// inCluster makes of what MCO gives a custom pool at the bootstrap what it gives it in a cluster: at the bootstrap the
// pool gets the kernel arguments of control groups a second time, beside the worker's. Source: MCO,
// pkg/controller/kubelet-config, where syncNodeConfigHandler has them for its own three pools only and
// RunNodeConfigBootstrap for all. So its name, a hash over the rest, is not the one that the program gave.
func inCluster(t *testing.T, m *mcfgv1.MachineConfig) {
	t.Helper()
	n := len(m.Spec.KernelArguments) / 2
	require.Positive(t, n)
	require.Equal(t, m.Spec.KernelArguments[:n], m.Spec.KernelArguments[n:])
	m.Name, m.Spec.KernelArguments = "", m.Spec.KernelArguments[:n]
}

// images gives the node the release's program and dayone's.
func (w *followed) images() {
	w.t.Helper()
	self, err := os.Executable()
	require.NoError(w.t, err)
	kubelet := releasejob.Start(w.t, w.Client)
	for name, text := range map[string]string{
		"machine-config-controller": fmt.Sprintf("exec %q \"$@\" --templates=%q", filepath.Join(string(w.m),
			"machine-config-controller"), filepath.Join(string(w.m), "templates")),
		cluster.Controller: fmt.Sprintf("%s=1 exec %q \"$@\"", sendEnv, self),
	} {
		dir := w.t.TempDir()
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		kubelet.Image(map[bool]string{true: "r.test/controller:1", false: image("mco-next")}[name == cluster.Controller],
			dir)
	}
}

// cluster makes what the operator of the former release has left, and what the next one's ConfigMaps say.
func (w *followed) cluster(set *manifests.Set, made, own map[string]string) {
	w.t.Helper()
	objects, err := cluster.Objects(cluster.Options{Images: cluster.Images{Controller: "r.test/controller:1",
		Builder: "b"}})
	require.NoError(w.t, err)
	for _, o := range objects {
		switch o.GetKind() {
		case "Namespace", "ServiceAccount", "PriorityClass":
			require.NoError(w.t, client.IgnoreAlreadyExists(w.Client.Create(w.t.Context(), o)), o.GetName())
		case "Deployment":
			d := &appsv1.Deployment{}
			require.NoError(w.t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d))
			d.Spec.Replicas = new(int32) // it runs in this process
			w.create(d)
		}
	}
	version := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Spec: configv1.ClusterVersionSpec{ClusterID: "5a8b2c9c-6c7b-4d3f-9a6c-0f6a1c2d3e4f"}}
	w.create(version)
	gate := w.next.gate.DeepCopy()
	status := gate.Status
	w.create(gate)
	gate.Status = status
	require.NoError(w.t, w.Client.Status().Update(w.t.Context(), gate))
	if w.next.streams != nil {
		streams := w.next.streams.DeepCopy()
		w.create(streams)
		streams.Status = w.next.streams.Status
		require.NoError(w.t, w.Client.Status().Update(w.t.Context(), streams))
	}
	images, err := json.Marshal(nextImages())
	require.NoError(w.t, err)
	for name, data := range map[string]map[string]string{
		"machine-config-operator-images": {"images.json": string(images)},
		"machine-config-osimageurl": {"releaseVersion": release, "osImageURL": "",
			"baseOSContainerImage": w.next.os, "baseOSExtensionsContainerImage": w.next.extensions},
	} {
		w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: name},
			Data: data})
	}
	w.create(w.next.pull.DeepCopy())
	controller := set.ControllerConfigs[0].Object.DeepCopy()
	w.create(controller)
	yes := true
	for _, files := range []map[string]string{made, own} {
		for name, text := range files {
			read, err := manifests.Read([]byte(text), name, manifests.ReadOptions{})
			require.NoError(w.t, err)
			m := read.MachineConfigs[0].Object
			if m.Annotations[manifests.AnnotationGeneratedByController] != "" {
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(),
					Kind: "ControllerConfig", Name: controller.Name, UID: controller.UID, Controller: &yes}}
			}
			w.create(m)
		}
	}
	for _, p := range set.Pools {
		w.create(p.Object)
	}
}

// create posts an object as its manifest says it.
func (w *followed) create(o client.Object) {
	w.t.Helper()
	gvks, _, err := w.Scheme.ObjectKinds(o)
	require.NoError(w.t, err)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(w.t, err)
	raw := &unstructured.Unstructured{Object: content}
	raw.SetGroupVersionKind(gvks[0])
	require.NoError(w.t, w.Client.Create(w.t.Context(), raw), o.GetName())
	o.SetUID(raw.GetUID())
	o.SetResourceVersion(raw.GetResourceVersion())
}

// start runs dayone's controllers that follow a release and render.
func (w *followed) start() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.Config, ctrl.Options{Scheme: w.Scheme, Controller: kubetest.Controllers(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(w.t, err)
	require.NoError(w.t, releasecontroller.SetupWithManager(mgr, releasecontroller.Options{
		Namespace: cluster.DefaultNamespace, Idle: time.Second, Busy: 200 * time.Millisecond}))
	require.NoError(w.t, rendercontroller.SetupWithManager(mgr, rendercontroller.Options{Settle: -1}))
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.t.Cleanup(func() { stop(); <-ended })
}
