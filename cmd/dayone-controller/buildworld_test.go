package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/hack/e2e/mcobuilder"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

const builderImage = "registry.test:5000/builder:v1"

// buildWorld is an API server with an installation but for what runs, and a registry. No kubelet runs the pods of
// builds: the test makes and ends them, with an image that it pushes.
type buildWorld struct {
	*testing.T
	env       *kubetest.Env
	namespace string
	registry  *deploytest.Registry
	// ca is a file with the registry's CA.
	ca string
}

func newBuildWorld(t *testing.T, o cluster.Options) *buildWorld {
	t.Helper()
	w := &buildWorld{T: t, env: shared.New(t), namespace: cluster.DefaultNamespace,
		registry: deploytest.StartRegistry(t), ca: filepath.Join(t.TempDir(), "ca.pem")}
	require.NoError(t, os.WriteFile(w.ca, w.registry.Authority.PEM, 0o600))
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	o.Images = cluster.Images{Controller: "r.test/c:1", Builder: builderImage, Daemon: "r.test/d:1"}
	objects, err := cluster.Objects(o)
	require.NoError(t, err)
	for _, object := range objects {
		require.NoError(t, client.IgnoreAlreadyExists(w.env.Client.Create(t.Context(), object)), object.GetName())
	}
	w.env.AwaitRights(t, objects)
	account, err := os.ReadFile(w.registry.AuthFile)
	require.NoError(t, err)
	for _, name := range []string{"push", buildcontroller.DefaultPullSecret} {
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: account}})
	}
	return w
}

func (w *buildWorld) create(o client.Object) {
	w.Helper()
	require.NoError(w, w.env.Client.Create(w.Context(), o), o.GetName())
}

// await waits for a condition.
func (w *buildWorld) await(check func(*assert.CollectT)) {
	w.Helper()
	require.EventuallyWithT(w, check, waitLimit, waitEvery)
}

// get reads an object of this name.
func (w *buildWorld) get(c assert.TestingT, namespace, name string, o client.Object) bool {
	return assert.NoError(c, w.env.Client.Get(context.Background(),
		client.ObjectKey{Namespace: namespace, Name: name}, o))
}

func poolOf(name string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: name}},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}}}
}

func machineConfig(name, role, argument string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{manifests.LabelRole: role}},
		Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{argument}}}
}

// renderingPool is a pool whose config dayone renders.
func (w *buildWorld) renderingPool(name string) {
	w.Helper()
	w.create(machineConfig("50-"+name, name, "pool="+name))
	w.create(poolOf(name))
}

// renders waits until the pool has another rendered config than before, and gives its name.
func (w *buildWorld) renders(pool, before string) (name string) {
	w.Helper()
	w.await(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		w.get(c, "", pool, p)
		name = p.Spec.Configuration.Name
		assert.NotContains(c, []string{"", before}, name, p.Status.Conditions)
	})
	return name
}

// renderedPool is a pool whose config MCO has rendered.
func (w *buildWorld) renderedPool(name string) {
	w.Helper()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + name + "-1"}}
	mc.Spec.Config.Raw, mc.Spec.OSImageURL = []byte(`{"ignition":{"version":"3.5.0"}}`), baseImage
	mc.Spec.KernelArguments = []string{"pool=" + name}
	w.create(mc)
	p := poolOf(name)
	p.Spec.Configuration.Name = mc.Name
	w.create(p)
	p.Status.Configuration.Name = mc.Name
	require.NoError(w, w.env.Client.Status().Update(w.Context(), p))
}

// node is a ready node of a pool that has the pool's config.
func (w *buildWorld) node(pool, config string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pool,
		Labels: map[string]string{"node-role.kubernetes.io/" + pool: ""},
		Annotations: map[string]string{manifests.AnnotationCurrentConfig: config,
			manifests.AnnotationDesiredConfig: config, manifests.AnnotationState: manifests.StateDone}}}
	w.create(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w, w.env.Client.Status().Update(w.Context(), n))
}

// desires waits until the pool's node shall have a config.
func (w *buildWorld) desires(pool, config string) {
	w.Helper()
	w.await(func(c *assert.CollectT) {
		n := &corev1.Node{}
		w.get(c, "", pool, n)
		assert.Equal(c, config, n.Annotations[manifests.AnnotationDesiredConfig], n.Annotations)
	})
}

// optIn makes a pool's MachineOSConfig.
func (w *buildWorld) optIn(pool string) {
	w.Helper()
	m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	m.Spec.MachineConfigPool.Name = pool
	m.Spec.ImageBuilder.ImageBuilderType = mcfgv1.JobBuilder
	m.Spec.RenderedImagePushSecret.Name = "push"
	m.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(w.registry.Addr + "/os/" + pool + ":latest")
	w.create(m)
}

// podWorks waits for the Job of a pool's build and gives it a pod at work.
func (w *buildWorld) podWorks(pool string) *corev1.Pod {
	w.Helper()
	var of *batchv1.Job
	w.await(func(c *assert.CollectT) {
		of = nil
		var jobs batchv1.JobList
		assert.NoError(c, w.env.Client.List(context.Background(), &jobs, client.InNamespace(w.namespace)))
		for i, j := range jobs.Items {
			if j.Annotations[manifests.LabelMachineOSConfig] == pool && (j.Spec.Suspend == nil || !*j.Spec.Suspend) {
				of = &jobs.Items[i]
			}
		}
		assert.NotNil(c, of, "pool %s has no Job that may run among %d", pool, len(jobs.Items))
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: of.Name,
		Labels: map[string]string{batchv1.JobNameLabel: of.Name}, Annotations: of.Spec.Template.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, batchv1.SchemeGroupVersion.WithKind("Job"))}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: job.Container, Image: builderImage}}}}
	maps.Copy(pod.Labels, of.Spec.Template.Labels)
	w.create(pod)
	w.reports(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	w.await(func(c *assert.CollectT) {
		b := &mcfgv1.MachineOSBuild{}
		w.get(c, "", of.Annotations[manifests.LabelMachineOSBuild], b)
		assert.True(c, building(b), "%v", b.Status.Conditions)
	})
	return pod
}

func building(b *mcfgv1.MachineOSBuild) bool {
	for _, c := range b.Status.Conditions {
		if c.Type == string(mcfgv1.MachineOSBuilding) {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

func (w *buildWorld) reports(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	w.Helper()
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.Container, State: state}}
	require.NoError(w, w.env.Client.Status().Update(w.Context(), pod))
}

// ends lets a pod push an image for a pool and end, as the builder does. It gives the image.
func (w *buildWorld) ends(pod *corev1.Pod, pool string) string {
	w.Helper()
	img, err := random.Image(64, 1)
	require.NoError(w, err)
	w.registry.Push(w, img, "os/"+pool)
	digest, err := img.Digest()
	require.NoError(w, err)
	message := job.Result{Digest: digest.String()}.Message()
	w.reports(pod, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: job.ExitOK, Message: string(message)}})
	return w.registry.Addr + "/os/" + pool + "@" + digest.String()
}

// has waits until a pool's image is this one. It has had one build.
func (w *buildWorld) has(pool, image string) {
	w.Helper()
	w.await(func(c *assert.CollectT) {
		m := &mcfgv1.MachineOSConfig{}
		w.get(c, "", pool, m)
		assert.Equal(c, image, string(m.Status.CurrentImagePullSpec), m.Status.Conditions)
	})
	var builds mcfgv1.MachineOSBuildList
	require.NoError(w, w.env.Client.List(w.Context(), &builds, client.MatchingLabels{manifests.LabelTargetPool: pool}))
	assert.Len(w, builds.Items, 1, "pool %s", pool)
}

// mcoAtWork is the stand-in for MCO's builder.
type mcoAtWork struct {
	mu      sync.Mutex
	builder *mcobuilder.Builder
}

// besideMCO lets the stand-in for MCO's builder work until the test ends.
func (w *buildWorld) besideMCO() *mcoAtWork {
	w.Helper()
	for _, o := range mcobuilder.Rights(w.namespace) {
		w.create(o)
	}
	account := w.env.ClientAs(w, w.namespace, mcobuilder.Account)
	w.await(func(c *assert.CollectT) {
		assert.True(c, mcobuilder.Held(context.Background(), account, w.namespace), "the policies are not in force")
	})
	mco := &mcoAtWork{builder: &mcobuilder.Builder{Client: account, Namespace: w.namespace,
		Inspect: func(string) bool { return false }}} // dayone gives images tags of its own
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			mco.mu.Lock()
			_ = mco.builder.Step(ctx) // what fails is tried again
			mco.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(waitEvery):
			}
		}
	}()
	w.Cleanup(func() {
		stop()
		<-ended
	})
	return mco
}

// refuses waits until the API server has refused a write: while dayone is away MCO does not build in its place.
func (m *mcoAtWork) refuses(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.builder.Refused) > 0
	}, waitLimit, waitEvery)
}

// builderProgram links machine-os-builder.
func builderProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "machine-os-builder")
	require.NoError(t, program.Build(t.Context(), "", program.Options{
		Package: "dayone.dev/dayone/cmd/machine-os-builder", Cgo: true}, path))
	return path
}
