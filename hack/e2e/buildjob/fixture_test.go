package buildjob_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/images"
	"dayone.dev/dayone/hack/kube/cluster"
	assets "dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/registrytest"
)

const (
	// States that nobody signals are looked at this often and this long: a limit for machines that are very busy.
	waitLimit = 4 * time.Minute
	waitEvery = 50 * time.Millisecond
	// builderBinary names a static machine-os-builder that is there already; the test builds one otherwise.
	builderBinary = "DAYONE_TEST_MACHINE_OS_BUILDER"
)

func TestMain(m *testing.M) {
	cluster.Init()
	os.Exit(m.Run())
}

// need skips what this machine or -short cannot run; in CI that is a failure.
func need(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster, which is left out with -short")
	}
	if err := cluster.Missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// world is a cluster with what an installation makes, a base image and the builder's.
type world struct {
	t       *testing.T
	cluster *cluster.Cluster
	client  client.Client
	reg     *registrytest.Registry
	builder string
	base    build.Image
	config  *mcfgv1.MachineOSConfig
	// attempts numbers the builds; change, when set, alters a Job before it is made.
	attempts int
	change   func(*batchv1.Job)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	need(t)
	c, err := cluster.Up(t.Context(), cluster.Options{Name: "buildjob", CacheDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Down(context.Background())) })
	w := &world{t: t, cluster: c, reg: registryOf(t, c)}
	w.connect()
	w.pushImages()
	w.install()
	return w
}

// registryOf is the cluster's registry in the form that tests know.
func registryOf(t *testing.T, c *cluster.Cluster) *registrytest.Registry {
	t.Helper()
	user := func(file string) registry.User {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		type account struct{ Auth, Username, Password string }
		var auth struct{ Auths map[string]account }
		require.NoError(t, json.Unmarshal(raw, &auth))
		a := auth.Auths[c.Registry.Address]
		if plain, err := base64.StdEncoding.DecodeString(a.Auth); err == nil && a.Auth != "" {
			a.Username, a.Password, _ = strings.Cut(string(plain), ":")
		}
		return registry.User{Name: a.Username, Password: a.Password}
	}
	return &registrytest.Registry{
		Addr: c.Registry.Address, CAFile: c.Registry.CAFile, PushAuthFile: c.Registry.PushAuthFile,
		PullAuthFile: c.Registry.PullAuthFile,
		Push:         user(c.Registry.PushAuthFile), Pull: user(c.Registry.PullAuthFile),
	}
}

func (w *world) connect() {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		mcfgv1.Install} {
		require.NoError(w.t, add(scheme))
	}
	var err error
	w.cluster.Config.WarningHandler = rest.NoWarnings{}
	w.client, err = client.New(w.cluster.Config, client.Options{Scheme: scheme})
	require.NoError(w.t, err)
}

func (w *world) pushImages() {
	p, err := images.Find(job.Program)
	require.NoError(w.t, err)
	binary := os.Getenv(builderBinary)
	if binary == "" {
		binary, err = p.Build(w.t.Context(), "../../..", w.t.TempDir(), "v0.0.0-test")
		require.NoError(w.t, err)
	}
	access, err := appendengine.NewClient(appendengine.Access{CAFile: w.reg.CAFile, AuthFile: w.reg.PushAuthFile})
	require.NoError(w.t, err)
	defer access.Close()
	reference, err := images.Push(w.t.Context(), access, p, binary, w.reg.Addr+"/dayone/"+p.Name, images.Options{})
	require.NoError(w.t, err)
	w.builder = inCluster(reference)
	w.base = build.Image{Reference: inCluster(buildtest.Push(w.t, w.reg, buildtest.Base{}).Reference)}
}

// inCluster is the name that pods have for an image.
func inCluster(reference string) string {
	_, rest, _ := strings.Cut(reference, "/")
	return cluster.RegistryName + "/" + rest
}

// install makes what dayone's installation does for builds.
func (w *world) install() {
	ctx := w.t.Context()
	crds, err := assets.CRDs()
	require.NoError(w.t, err)
	for _, crd := range crds {
		require.NoError(w.t, w.client.Create(ctx, crd))
	}
	objects, err := assets.Objects(assets.Options{Images: assets.Images{Controller: "r.example/c", Builder: w.builder}})
	require.NoError(w.t, err)
	for _, o := range objects {
		switch o.GetKind() {
		case "Namespace", "PriorityClass", "ServiceAccount", "NetworkPolicy":
			require.NoError(w.t, w.client.Create(ctx, o), o.GetName())
		}
	}
	pull, err := w.cluster.PullSecret(assets.DefaultNamespace, "pull")
	require.NoError(w.t, err)
	require.NoError(w.t, w.client.Create(ctx, pull))
	w.config = &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "worker"},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   cluster.RegistryName + "/ocp/worker-os:latest",
	}}
	w.retry(func() error { return w.client.Create(ctx, w.config.DeepCopy()) }, "the CRDs are served")
	w.retry(func() error { return w.client.List(ctx, &mcfgv1.MachineOSBuildList{}) }, "and that of builds")
}

// retry does what works a moment later.
func (w *world) retry(do func() error, what string) {
	w.t.Helper()
	var err error
	require.Eventually(w.t, func() bool { err = do(); return err == nil || apierrors.IsAlreadyExists(err) }, waitLimit,
		waitEvery, "%s", what)
}

// request is a build of that Containerfile as a controller asks for it.
func (w *world) request(containerfile string) build.Request {
	config := buildtest.Config(w.t, nil)
	config.Name = "rendered-worker-0123"
	return build.Request{Pool: "worker", Base: w.base, Config: config, Containerfile: containerfile,
		Target: cluster.RegistryName + "/ocp/worker-os"}
}

// start makes the MachineOSBuild and its objects.
func (w *world) start(containerfile string, change func(*job.Options)) *mcfgv1.MachineOSBuild {
	w.t.Helper()
	ctx, r := w.t.Context(), w.request(containerfile)
	address, err := r.Address()
	require.NoError(w.t, err)
	w.attempts++
	b := &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{Name: machineosbuild.AttemptName("worker", address, w.attempts),
			Labels: machineosbuild.Labels("worker", "worker", r.Config.Name)},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: r.Config.Name},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
			RenderedImagePushSpec: w.config.Spec.RenderedImagePushSpec},
	}
	require.NoError(w.t, w.client.Create(ctx, b))
	in := job.Input{Build: b, Config: w.config, Request: r, Options: job.Options{BuilderImage: w.builder,
		ImagePullSecrets: []string{"pull"}}}
	if change != nil {
		change(&in.Options)
	}
	in.CA, err = os.ReadFile(w.reg.CAFile)
	require.NoError(w.t, err)
	pull, err := w.cluster.PullSecret("", "")
	require.NoError(w.t, err)
	push, err := w.cluster.PushSecret("", "")
	require.NoError(w.t, err)
	in.PullSecret, err = credentials.Canonical(pull.Data)
	require.NoError(w.t, err)
	in.PushSecret, err = credentials.Canonical(push.Data)
	require.NoError(w.t, err)
	objects, err := job.New(in)
	require.NoError(w.t, err)
	for _, c := range objects.ConfigMaps {
		require.NoError(w.t, w.client.Create(ctx, c))
	}
	for _, s := range objects.Secrets {
		require.NoError(w.t, w.client.Create(ctx, s))
	}
	if w.change != nil {
		w.change(objects.Job)
	}
	require.NoError(w.t, w.client.Create(ctx, objects.Job))
	return b
}

// observe is one look at the build.
func (w *world) observe(b *mcfgv1.MachineOSBuild) job.Observation {
	w.t.Helper()
	ctx := w.t.Context()
	var j batchv1.Job
	err := w.client.Get(ctx, client.ObjectKey{Namespace: assets.DefaultNamespace, Name: job.JobName(b.Name)}, &j)
	if apierrors.IsNotFound(err) {
		return job.Observe(nil, nil)
	}
	require.NoError(w.t, err)
	return job.Observe(&j, w.pods(b))
}

func (w *world) pods(b *mcfgv1.MachineOSBuild) []corev1.Pod {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.client.List(w.t.Context(), &pods, client.InNamespace(assets.DefaultNamespace),
		client.MatchingLabels{batchv1.JobNameLabel: job.JobName(b.Name)}))
	return pods.Items
}

// until looks at the build until it is as wanted, and keeps its MachineOSBuild in step as a controller does: the API
// takes every move.
func (w *world) until(b *mcfgv1.MachineOSBuild, done func(job.Observation) bool) job.Observation {
	w.t.Helper()
	var o job.Observation
	require.Eventually(w.t, func() bool {
		o = w.observe(b)
		if machineosbuild.Allowed(machineosbuild.StateOf(b), o.State) {
			require.NoError(w.t, machineosbuild.Move(b, o.State, o.Cause, time.Now()))
			if o.Digest != "" {
				b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(cluster.RegistryName + "/ocp/worker-os@" + o.Digest)
			}
			require.NoError(w.t, w.client.Status().Update(w.t.Context(), b))
		}
		return done(o)
	}, waitLimit, waitEvery, "%s", "the build's state")
	return o
}

func terminal(o job.Observation) bool { return o.State.Terminal() }

// isTrue reads a condition as the API stored it.
func (w *world) isTrue(b *mcfgv1.MachineOSBuild, kind machineosbuild.State) bool {
	w.t.Helper()
	var stored mcfgv1.MachineOSBuild
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(b), &stored))
	return meta.IsStatusConditionTrue(stored.Status.Conditions, string(kind))
}
