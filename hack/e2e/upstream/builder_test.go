package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
)

// mcoBuilder is the account of MCO's machine-os-builder.
const mcoBuilder = "machine-os-builder"

// beside is a cluster in which the real controllers run, each as itself, and dayone builds in mode builder. What a
// kubelet would do with build pods is done here.
type beside struct {
	*world
	registry *registrytest.Registry
	// log is what MCO's builder writes.
	log *output
	// outcome is how builds end; nil is success.
	outcome *build.Failure
	stop    func()
}

// TestBuilderMode lets dayone build the images that the real MCO asks for and rolls out: opt-in, another config, a
// rebuild, a failure, dayone away, and the builds given back.
func TestBuilderMode(t *testing.T) {
	m := run.mco(t)
	if testing.Short() {
		run.without(t, "needs a real kube-apiserver, which is left out with -short")
	}
	run.record(t, func() string { return "MCO makes the builds and rolls their images out, dayone builds them" })
	w := newBeside(t, m)

	w.optIn()
	first := w.rollsOut("is opted in", "")
	w.nodeFollows()

	w.create(w.motd("one"))
	second := w.rollsOut("has another file", first)
	w.nodeFollows()

	name := w.mosc().Annotations[manifests.AnnotationCurrentBuild]
	w.change(func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, manifests.AnnotationRebuild, "")
	})
	third := w.rollsOut("is rebuilt", second)
	assert.Equal(t, name, w.mosc().Annotations[manifests.AnnotationCurrentBuild])
	assert.NotContains(t, w.mosc().Annotations, manifests.AnnotationRebuild)
	w.nodeFollows()

	w.outcome = &build.Failure{Class: build.ClassUser, Step: "containerfile", Message: "no such package", Line: 2,
		Instruction: "RUN false"}
	w.text("FROM configs\nRUN false\n")
	w.failsVisibly()
	assert.Equal(t, third, string(w.mosc().Status.CurrentImagePullSpec))

	w.outcome = nil
	w.away()
	fourth := w.rollsOut("is built after dayone was away", third)
	w.nodeFollows()

	w.givesBack(fourth)
}

func newBeside(t *testing.T, m mco) *beside {
	t.Helper()
	plain := m.operator(t, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	files := users()
	for _, pool := range []string{"infra", "worker"} {
		delete(files, "99_mosc-"+pool+".yaml")
	}
	b := plain.with(t, files)
	dest, out, err := m.controller(t, b)
	require.NoError(t, err, out)
	set, err := manifests.ReadDir(filepath.Join(dest, render.PoolsDir), manifests.ReadOptions{})
	require.NoError(t, err)
	names := map[string]string{}
	for _, p := range set.Pools {
		names[p.Object.Name] = p.Object.Spec.Configuration.Name
	}
	w := &beside{world: newWorldWith(t, kubetest.Options{ControllerManager: true}), registry: registrytest.Start(t)}
	w.install()
	w.post(b)
	w.trustRegistry()
	w.give(b)
	w.join("master", names["master"], image("master-os"))
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0",
		Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: names["worker"], manifests.AnnotationDesiredConfig: names["worker"],
			manifests.AnnotationState: manifests.StateDone}}})
	w.eventually("the node is ready", w.heartbeat)
	metrics := func() string { return fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)) }
	w.start(m, "machine-config-controller", "--templates", filepath.Join(string(m), "templates"),
		"--payload-version", release, "--metrics-listen-address", metrics(), "--kubeconfig", w.kubeconfig,
		"--streams-cache", t.TempDir())
	w.log = w.startAs(w.account(mcoBuilder), m, "machine-os-builder", "--metrics-listen-address", metrics())
	w.startDayone()
	go w.kubelet(t.Context())
	w.adopts("master", names["master"])
	return w
}

// install makes what an installation in mode builder has, but for what runs, and MCO's account.
func (w *beside) install() {
	w.t.Helper()
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Building,
		Images: cluster.Images{Controller: "c", Builder: "b"}})
	require.NoError(w.t, err)
	for _, o := range objects {
		if kind := o.GetKind(); kind != "Deployment" && kind != "NetworkPolicy" && kind != "Service" {
			require.NoError(w.t, client.IgnoreAlreadyExists(w.env.Client.Create(w.t.Context(), o)), o.GetName())
		}
	}
	w.env.AwaitRights(w.t, objects)
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: mcoBuilder}})
	w.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mco-builder"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: cluster.DefaultNamespace, Name: mcoBuilder}}})
}

// account is a kubeconfig of a service account.
func (w *beside) account(account string) string {
	w.t.Helper()
	config := w.env.As(w.t, cluster.DefaultNamespace, account)
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	file := filepath.Join(w.t.TempDir(), "kubeconfig")
	require.NoError(w.t, clientcmd.WriteToFile(*k, file))
	return file
}

// trustRegistry gives MCO and dayone the CA of the registry, the credentials of a push, and MCO the release's images.
func (w *beside) trustRegistry() {
	w.t.Helper()
	ca, err := os.ReadFile(w.registry.CAFile)
	require.NoError(w.t, err)
	cc := &mcfgv1.ControllerConfig{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: render.ControllerConfigName}, cc))
	cc.Spec.ImageRegistryBundleUserData = []mcfgv1.ImageRegistryBundle{
		{File: strings.Replace(w.registry.Addr, ":", "..", 1), Data: ca}}
	require.NoError(w.t, w.env.Client.Update(w.t.Context(), cc))
	// Without the release's images MCO's builder ends before it asks the API server for anything of a build.
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: "machine-config-operator-images"}, Data: map[string]string{
		"images.json": fmt.Sprintf(`{"machineConfigOperator": %q}`, image("mco"))}})
	auth, err := os.ReadFile(w.registry.PushAuthFile)
	require.NoError(w.t, err)
	for _, secret := range []string{"push-worker", cluster.PullSecretCopy} { // MCO ends when the second is not there
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: secret},
			Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: auth}})
	}
}

// heartbeat says that the node is ready: Kubernetes' own controller takes a node without heartbeats for lost.
func (w *beside) heartbeat(ctx context.Context) error {
	n := &corev1.Node{}
	if err := w.env.Client.Get(ctx, client.ObjectKey{Name: "worker-0"}, n); err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now()}}
	return w.env.Client.Status().Update(ctx, n)
}

// startDayone runs dayone's controller with the rights of mode builder until stop is called or the test ends.
func (w *beside) startDayone() {
	w.t.Helper()
	config := w.env.As(w.t, cluster.DefaultNamespace, cluster.Controller)
	config.QPS = -1
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.env.Scheme, Metrics: metricsserver.Options{
		BindAddress: "0"}, Cache: buildcontroller.CacheOptions(cluster.DefaultNamespace),
		Controller: kubetest.Controllers()})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(w.t, buildcontroller.AddBeside(ctx, mgr, buildcontroller.Options{Log: report.NoLog(),
		Images: buildcontroller.Registries{}, Finder: buildcontroller.Registries{}, Platform: "linux/amd64",
		Job: job.Options{BuilderImage: w.registry.Addr + "/builder:1"}}))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		require.NoError(w.t, <-done)
		w.stop = func() {}
	}
	w.t.Cleanup(func() { w.stop() })
}

// kubelet keeps the node ready and ends build pods: it pushes an image with the address that its build names, or fails
// as outcome says.
func (w *beside) kubelet(ctx context.Context) {
	for beat := (time.Time{}); ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		if time.Since(beat) > 5*time.Second && w.heartbeat(ctx) == nil {
			beat = time.Now()
		}
		var pods corev1.PodList
		_ = w.env.Client.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace), client.HasLabels{
			manifests.LabelEphemeralBuildObject, batchv1.JobNameLabel})
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Status.Phase == corev1.PodPending && p.Spec.Containers[0].Name == job.Container {
				_ = w.endPod(ctx, p) // the next round tries again
			}
		}
	}
}

func (w *beside) endPod(ctx context.Context, p *corev1.Pod) error {
	result := job.Result{Failure: w.outcome}
	if result.Failure == nil {
		var err error
		if result.Digest, err = w.push(ctx, p.Annotations[manifests.LabelMachineOSBuild]); err != nil {
			return err
		}
	}
	p.Status.Phase = corev1.PodSucceeded
	if result.ExitCode() != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(result.ExitCode()), Message: string(result.Message()),
			FinishedAt: metav1.Now()}}}}
	return w.env.Client.Status().Update(ctx, p)
}

// push puts an image into the registry in the place of the one that the build would make.
func (w *beside) push(ctx context.Context, of string) (digest string, err error) {
	var b mcfgv1.MachineOSBuild
	if err := w.env.Client.Get(ctx, client.ObjectKey{Name: of}, &b); err != nil {
		return "", err
	}
	address := b.Annotations[manifests.AnnotationBuildAddress]
	made, err := random.Image(1024, 1)
	if err != nil {
		return "", err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return "", err
	}
	config.Config.Labels = map[string]string{build.LabelAddress: address}
	if made, err = mutate.ConfigFile(made, config); err != nil {
		return "", err
	}
	return w.pushed(ctx, made, w.registry.Addr+"/os/worker:"+build.Tag(address))
}

// pushed puts an image into the registry.
func (w *beside) pushed(ctx context.Context, made v1.Image, at string) (digest string, err error) {
	tag, err := name.NewTag(at)
	if err != nil {
		return "", err
	}
	hash, err := made.Digest()
	return hash.String(), errors.Join(err, remote.Write(tag, made,
		append(w.registry.Pusher(w.t), remote.WithContext(ctx))...))
}

// optIn makes the MachineOSConfig of the workers.
func (w *beside) optIn() {
	w.t.Helper()
	w.create(&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push-worker"},
		RenderedImagePushSpec:   mcfgv1.ImageTagFormat(w.registry.Addr + "/os/worker:latest"),
		Containerfile: []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch,
			Content: "FROM configs\nRUN true\n"}},
	}})
}

func (w *beside) mosc() *mcfgv1.MachineOSConfig {
	w.t.Helper()
	c := &mcfgv1.MachineOSConfig{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: "worker"}, c))
	return c
}

func (w *beside) change(how func(*mcfgv1.MachineOSConfig)) {
	w.t.Helper()
	w.eventually("the MachineOSConfig is changed", func(ctx context.Context) error {
		c := w.mosc()
		how(c)
		return w.env.Client.Update(ctx, c)
	})
}

func (w *beside) text(containerfile string) {
	w.t.Helper()
	w.change(func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile[0].Content = containerfile })
}

// motd is a MachineConfig with a file alone, for which MCO would reuse the last image.
func (w *beside) motd(text string) *mcfgv1.MachineConfig {
	m := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-motd-worker",
		Labels: map[string]string{manifests.LabelRole: "worker"}}}
	m.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/motd.d/x","mode":420,` +
		`"overwrite":true,"contents":{"source":"data:,` + text + `"}}]}}`)
	return m
}

// rollsOut waits until the workers' image is another one, which dayone built for what MCO asks for, and until MCO's
// node controller gives it to the node.
func (w *beside) rollsOut(what, before string) string {
	w.t.Helper()
	after := ""
	w.eventually("pool worker "+what, func(ctx context.Context) error {
		c := w.mosc()
		after = string(c.Status.CurrentImagePullSpec)
		var b mcfgv1.MachineOSBuild
		var n corev1.Node
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: c.Annotations[manifests.AnnotationCurrentBuild]},
			&b); err != nil {
			return err
		}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: "worker-0"}, &n); err != nil {
			return err
		}
		if after == "" || after == before || string(b.Status.DigestedImagePushSpec) != after ||
			n.Annotations[manifests.AnnotationDesiredImage] != after || b.Annotations[manifests.AnnotationClaimed] == "" {
			return fmt.Errorf("image %s, build %s %s with %s, node %s", after, b.Name, machineosbuild.StateOf(&b),
				b.Status.DigestedImagePushSpec, n.Annotations[manifests.AnnotationDesiredImage])
		}
		return nil
	})
	return after
}

// nodeFollows does what MCO's daemon does on the node, until the pool says that it is updated.
func (w *beside) nodeFollows() {
	w.t.Helper()
	w.eventually("pool worker is updated", func(ctx context.Context) error {
		var n corev1.Node
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: "worker-0"}, &n); err != nil {
			return err
		}
		n.Annotations[manifests.AnnotationCurrentConfig] = n.Annotations[manifests.AnnotationDesiredConfig]
		n.Annotations[manifests.AnnotationCurrentImage] = n.Annotations[manifests.AnnotationDesiredImage]
		if err := w.env.Client.Update(ctx, &n); err != nil {
			return err
		}
		var p mcfgv1.MachineConfigPool
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: "worker"}, &p); err != nil {
			return err
		}
		if p.Status.Configuration.Name != p.Spec.Configuration.Name || p.Status.UpdatedMachineCount != 1 {
			return fmt.Errorf("%s of %s, %d nodes", p.Status.Configuration.Name, p.Spec.Configuration.Name,
				p.Status.UpdatedMachineCount)
		}
		return nil
	})
}

// failsVisibly waits until MCO's condition on the pool and the cause on the build say that the build failed.
func (w *beside) failsVisibly() {
	w.t.Helper()
	w.eventually("the failure is on the pool", func(ctx context.Context) error {
		var b mcfgv1.MachineOSBuild
		var p mcfgv1.MachineConfigPool
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: "worker"}, &p); err != nil {
			return err
		}
		name := w.mosc().Annotations[manifests.AnnotationCurrentBuild]
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: name}, &b); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == mcfgv1.MachineConfigPoolImageBuildDegraded && c.Status == corev1.ConditionTrue &&
				strings.Contains(c.Message, b.Name) && strings.Contains(machineosbuild.CauseOf(&b).Message, "no such package") {
				return nil
			}
		}
		return fmt.Errorf("build %s %s, %+v", b.Name, machineosbuild.StateOf(&b), p.Status.Conditions)
	})
}

// away lets MCO ask for a build while dayone does not run: the API server refuses what MCO would do, and nothing of it
// is left.
func (w *beside) away() {
	w.t.Helper()
	w.stop()
	w.text("FROM configs\nRUN echo away\n")
	w.eventually("MCO is refused", func(context.Context) error {
		if !strings.Contains(w.log.String(), "'dayone-builds-only'") {
			return errors.New("MCO has not tried")
		}
		return nil
	})
	theirs := client.MatchingLabels{manifests.LabelEphemeralBuildObject: "", manifests.LabelOnClusterLayering: ""}
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, &batchv1.JobList{}} {
		require.NoError(w.t, w.env.Client.List(w.t.Context(), list, client.InNamespace(cluster.DefaultNamespace), theirs))
		assert.Empty(w.t, items(list), "%T", list)
	}
	w.startDayone()
}

func items(list client.ObjectList) (names []string) {
	switch l := list.(type) {
	case *corev1.ConfigMapList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	case *corev1.SecretList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	case *batchv1.JobList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	}
	return names
}

// givesBack removes dayone: the image stays as it is, and MCO builds the next one itself.
func (w *beside) givesBack(image string) {
	w.t.Helper()
	w.stop()
	objects, err := cluster.Objects(cluster.Options{Mode: cluster.Building,
		Images: cluster.Images{Controller: "c", Builder: "b"}})
	require.NoError(w.t, err)
	for _, o := range objects {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			require.NoError(w.t, client.IgnoreNotFound(w.env.Client.Delete(w.t.Context(), o)), o.GetName())
		}
	}
	require.NoError(w.t, clusterinstall.Uninstall(w.t.Context(), clusterinstall.Target{Client: w.env.Client,
		Namespace: cluster.DefaultNamespace, Out: w.t.Output(), Limit: adopted}, false))
	current := w.mosc().Annotations[manifests.AnnotationCurrentBuild]
	w.text("FROM configs\nRUN echo mco\n")
	w.eventually("MCO builds itself", func(ctx context.Context) error {
		var jobs batchv1.JobList
		if err := w.env.Client.List(ctx, &jobs, client.InNamespace(cluster.DefaultNamespace),
			client.HasLabels{manifests.LabelEphemeralBuildObject, manifests.LabelOnClusterLayering}); err != nil {
			return err
		}
		if len(jobs.Items) != 1 || jobs.Items[0].Labels[cluster.LabelManagedBy] != "" {
			return fmt.Errorf("%d Jobs", len(jobs.Items))
		}
		return nil
	})
	var b mcfgv1.MachineOSBuild
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: current}, &b))
	assert.Equal(w.t, image, string(b.Status.DigestedImagePushSpec))
	assert.NotContains(w.t, b.Labels, manifests.AnnotationPreBuiltImage)
	var n corev1.Node
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: "worker-0"}, &n))
	assert.Equal(w.t, image, n.Annotations[manifests.AnnotationDesiredImage], "nothing is rolled out meanwhile")
}
