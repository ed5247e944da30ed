package incluster_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/hack/images"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
)

// version is the programs', and who made the ControllerConfig has it, too: others must not render.
const version = "v0.0.0-test"

// machineConfig is the pool's only one.
const machineConfig = "50-worker-test"

// Names of Secrets in the builds' namespace.
const (
	pushSecret = "push"
	nodePull   = "node-pull"
)

// world is a cluster with an administrator's client.
type world struct {
	t       *testing.T
	log     *logrus.Entry
	cluster *kubecluster.Cluster
	client  client.Client
	reg     *registrytest.Registry
	base    string // of the pools' images, by its name in the cluster
	jobs    map[string]batchv1.Job
	program string // dayone, once it is built
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster, which is left out with -short")
	}
	if err := kubecluster.Missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	log := logrus.New()
	log.SetOutput(t.Output())
	c, err := kubecluster.Up(t.Context(), kubecluster.Options{Name: "incluster", Log: logrus.NewEntry(log)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Down(context.Background())) })
	scheme, err := kubetest.NewScheme()
	require.NoError(t, err)
	k, err := client.New(c.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w := &world{t: t, log: logrus.NewEntry(log), cluster: c, client: k, jobs: map[string]batchv1.Job{}}
	w.reg = &registrytest.Registry{Addr: c.Registry.Address, CAFile: c.Registry.CAFile,
		PushAuthFile: c.Registry.PushAuthFile,
		PullAuthFile: c.Registry.PullAuthFile, Push: c.Registry.Push, Pull: c.Registry.Pull}
	w.base = w.inCluster(buildtest.Push(t, w.reg, buildtest.Base{}).Reference)
	return w
}

// inCluster is a reference as the cluster's pods know it.
func (w *world) inCluster(reference string) string {
	return strings.Replace(reference, w.cluster.Registry.Address, kubecluster.RegistryName, 1)
}

// here is a reference as this machine reaches it.
func (w *world) here(reference string) string {
	return strings.Replace(reference, kubecluster.RegistryName, w.cluster.Registry.Address, 1)
}

// image is imageOf of this test's version.
func (w *world) image(program string) string {
	w.t.Helper()
	return w.imageOf(program, version)
}

// imageOf builds one of dayone's programs, pushes its image and gives the name in the cluster.
func (w *world) imageOf(program, version string) string {
	w.t.Helper()
	p, err := images.Find(program)
	require.NoError(w.t, err)
	source, err := filepath.Abs("../../..")
	require.NoError(w.t, err)
	binary, err := p.Build(w.t.Context(), source, w.t.TempDir(), version)
	require.NoError(w.t, err)
	c, err := appendengine.NewClient(appendengine.Access{CAFile: w.cluster.Registry.CAFile,
		AuthFile: w.cluster.Registry.PushAuthFile})
	require.NoError(w.t, err)
	defer c.Close()
	reference, err := images.Push(w.t.Context(), c, p, binary, w.cluster.Registry.Address+"/dayone/"+program,
		images.Options{})
	require.NoError(w.t, err)
	return w.inCluster(reference)
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.client.Create(w.t.Context(), o), "%T %s", o, o.GetName())
}

// install puts dayone into the cluster as an administrator does, after what a cluster has anyway: its pull secret.
func (w *world) install() {
	w.t.Helper()
	for _, name := range []string{cluster.DefaultNamespace, cluster.PullSecretNamespace} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	push, err := w.cluster.PushSecret(cluster.DefaultNamespace, pushSecret)
	require.NoError(w.t, err)
	node, err := w.cluster.PullSecret(cluster.DefaultNamespace, nodePull)
	require.NoError(w.t, err)
	global, err := w.cluster.PullSecret(cluster.PullSecretNamespace, cluster.PullSecretName)
	require.NoError(w.t, err)
	for _, s := range []*corev1.Secret{push, node, global} {
		w.create(s)
	}
	w.dayone("cluster", "install", "--image-pull-secret", nodePull,
		"--image", "controller="+w.image("dayone-controller"), "--image", "builder="+w.image("machine-os-builder"))
	ca, err := os.ReadFile(w.cluster.Registry.CAFile)
	require.NoError(w.t, err)
	w.create(controllerConfig(w.base, ca))
}

// dayone runs the program on this machine and gives what it prints.
func (w *world) dayone(args ...string) string {
	w.t.Helper()
	if w.program == "" {
		w.program = filepath.Join(w.t.TempDir(), "dayone")
		require.NoError(w.t, program.Build(w.t.Context(), "",
			program.Options{Package: "dayone.dev/dayone/cmd/dayone", Cgo: true}, w.program))
	}
	cmd := exec.CommandContext(w.t.Context(), w.program, append(args, "--kubeconfig", w.cluster.Kubeconfig)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.FailNow(w.t, err.Error(), "%s\n%s", out, w.explain())
	}
	w.t.Logf("dayone %s\n%s", strings.Join(args[:2], " "), out)
	return string(out)
}

// controllerConfig is the release's: the base image, the authority of its registry, and what the API demands besides.
func controllerConfig(base string, ca []byte) *mcfgv1.ControllerConfig {
	return &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName, Annotations: map[string]string{
			manifests.AnnotationGeneratedByVersion: version, manifests.AnnotationReleaseImageVersion: version}},
		Spec: mcfgv1.ControllerConfigSpec{
			BaseOSContainerImage: base, AdditionalTrustBundle: ca, IPFamilies: mcfgv1.IPFamiliesIPv4,
			ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{}, ImageRegistryBundleUserData: []mcfgv1.ImageRegistryBundle{},
			Images: map[string]string{}, KubeAPIServerServingCAData: []byte("ca"), RootCAData: []byte("ca"),
			ReleaseImage: "release",
		},
	}
}

// pool makes a pool with one MachineConfig; dayone-controller renders it.
func (w *world) pool(name string) {
	w.t.Helper()
	role := map[string]string{manifests.LabelRole: name}
	config := buildtest.Config(w.t, nil)
	config.Name, config.Labels = machineConfig, role
	w.create(config)
	w.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role}}})
}

// reconfigure adds a file to the pool's MachineConfig.
func (w *world) reconfigure(path, text string) {
	w.t.Helper()
	var config mcfgv1.MachineConfig
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: machineConfig}, &config))
	config.Spec.Config = buildtest.Config(w.t, map[string]string{path: text}).Spec.Config
	require.NoError(w.t, w.client.Update(w.t.Context(), &config))
}

func (w *world) machineOSConfig(pool, text string) {
	w.t.Helper()
	w.create(&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: pushSecret},
		RenderedImagePushSpec:   mcfgv1.ImageTagFormat(kubecluster.RegistryName + "/os/" + pool + ":latest"),
		Containerfile:           containerfile(text),
	}})
}

func containerfile(text string) []mcfgv1.MachineOSContainerfile {
	return []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: text}}
}

// edit changes the Containerfile as an administrator does.
func (w *world) edit(pool, text string) {
	w.t.Helper()
	var c mcfgv1.MachineOSConfig
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: pool}, &c))
	before := c.DeepCopy()
	c.Spec.Containerfile = containerfile(text)
	require.NoError(w.t, w.client.Patch(w.t.Context(), &c, client.MergeFrom(before)))
}

// restartBuilder ends the builder's pod, at once as a crash or in order, and waits until the next one is at work.
func (w *world) restartBuilder(crash bool) {
	w.t.Helper()
	var pod corev1.Pod
	w.await(func(ctx context.Context) bool { // one that was ended before may still be on its way out
		var list corev1.PodList
		if w.client.List(ctx, &list, client.InNamespace(cluster.DefaultNamespace),
			client.MatchingLabels{"app.kubernetes.io/name": cluster.Builder}) != nil || len(list.Items) != 1 {
			return false
		}
		pod = list.Items[0]
		return pod.DeletionTimestamp.IsZero()
	})
	var options []client.DeleteOption
	if crash {
		options = append(options, client.GracePeriodSeconds(0))
	}
	require.NoError(w.t, w.client.Delete(w.t.Context(), &pod, options...))
	w.await(func(ctx context.Context) bool {
		var lease coordinationv1.Lease
		if w.client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.Builder}, &lease) != nil ||
			lease.Spec.HolderIdentity == nil {
			return false
		}
		holder := *lease.Spec.HolderIdentity
		return holder != "" && !strings.HasPrefix(holder, pod.Name)
	})
}

func (w *world) remote(reference string) v1.Image {
	w.t.Helper()
	ref, err := name.ParseReference(w.here(reference))
	require.NoError(w.t, err)
	img, err := remote.Image(ref, remote.WithTransport(w.reg.Transport(w.t)),
		remote.WithAuth(&authn.Basic{Username: w.reg.Pull.Name, Password: w.reg.Pull.Password}))
	require.NoError(w.t, err)
	return img
}

// files are the regular files of an image, by path.
func (w *world) files(reference string) map[string]string {
	w.t.Helper()
	flat := mutate.Extract(w.remote(reference))
	defer flat.Close()
	files := map[string]string{}
	in := tar.NewReader(flat)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(w.t, err)
		if h.Typeflag == tar.TypeReg && h.Size < 1<<16 {
			raw, err := io.ReadAll(in)
			require.NoError(w.t, err)
			files[strings.TrimPrefix(h.Name, "./")] = string(raw)
		}
	}
}

// builtOn says whether the image's first layers are the base's, bit for bit.
func (w *world) builtOn(reference, base string) bool {
	w.t.Helper()
	image, err := w.remote(reference).Manifest()
	require.NoError(w.t, err)
	below, err := w.remote(base).Manifest()
	require.NoError(w.t, err)
	if len(image.Layers) <= len(below.Layers) {
		return false
	}
	for i, l := range below.Layers {
		if image.Layers[i].Digest != l.Digest {
			return false
		}
	}
	return true
}

// explain is what somebody needs who looks for the reason of a failure.
func (w *world) explain() string {
	var out strings.Builder
	for _, args := range [][]string{
		{"get", "machineconfigpools,machineosconfigs,machineosbuilds", "-o", "yaml", "--show-managed-fields=false"},
		{"get", "deployments,jobs,pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", cluster.DefaultNamespace, "deployment/" + cluster.Controller, "--tail=40"},
		{"logs", "-n", cluster.DefaultNamespace, "deployment/" + cluster.Builder, "--tail=40"},
		{"logs", "-n", cluster.DefaultNamespace, "-l", "batch.kubernetes.io/job-name", "--tail=40"},
	} {
		text, _ := w.cluster.Kubectl(context.Background(), args...).CombinedOutput() // as much as there is
		out.WriteString("$ kubectl " + strings.Join(args, " ") + "\n" + string(text))
	}
	return out.String()
}
