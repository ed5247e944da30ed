package incluster_test

import (
	"context"
	"os"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/e2e/mcobuilder"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// mended is what failing should have been.
const mended = `FROM configs AS final
RUN true
RUN echo mended > /etc/from-run
`

// rendered is the pool's config, which MCO's render controller makes.
const rendered = "rendered-worker-0123"

// TestModeBuilderInTheCluster lets a user's Containerfile fail in a real build pod beside MCO, whose builder is a
// stand-in: dayone says why, by the line, and keeps the log when Job and pod are gone. The mended one is built. Nothing
// is left when dayone is removed.
func TestModeBuilderInTheCluster(t *testing.T) {
	w := newWorld(t)
	w.besideMCO()
	w.dayone("cluster", "install", "--mode", "builder", "--image-pull-secret", nodePull,
		"--image", "controller="+w.image("dayone-controller"), "--image", "builder="+w.image("machine-os-builder"))
	w.log.Info("asking for an image that cannot be built")
	w.machineOSConfig("worker", failing)
	b := w.ended("worker", func(*mcfgv1.MachineOSBuild) bool { return true })
	require.Equal(t, machineosbuild.Failed, machineosbuild.StateOf(b), w.explain())

	why := w.eventually("why", "MachineOSBuild "+b.Name+" failed (user)")
	assert.Contains(t, why, "line 3 of the Containerfile: RUN echo the package mirror says no >&2; exit 7")
	assert.Regexp(t, `next: +\S`, why)
	w.eventually("logs", "the package mirror says no")
	zero := client.PropagationPolicy(metav1.DeletePropagationForeground)
	require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.DefaultNamespace, Name: job.JobName(b.Name)}}, zero)))
	w.await(func(ctx context.Context) bool {
		var pods corev1.PodList
		return w.client.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace),
			client.HasLabels{batchv1.JobNameLabel}) == nil && len(pods.Items) == 0
	})
	logs := w.eventually("logs", "the package mirror says no")
	assert.Contains(t, logs, "Place: line 3 of the Containerfile", "the cause is below the log")
	assert.Regexp(t, `BuildFailed +worker .*line 3`, w.eventually("status", "BuildFailed"))

	w.log.Info("mending it")
	w.edit("worker", mended)
	b = w.ended("worker", func(n *mcfgv1.MachineOSBuild) bool { return n.Name != b.Name })
	require.Equal(t, machineosbuild.Succeeded, machineosbuild.StateOf(b), w.explain())
	image := string(b.Status.DigestedImagePushSpec)
	assert.Equal(t, "mended\n", w.files(image)["etc/from-run"])
	w.settled("worker", func(c *mcfgv1.MachineOSConfig) bool { return string(c.Status.CurrentImagePullSpec) == image })
	assert.NotContains(t, w.dayone("cluster", "why", "worker"), "failed (")

	w.log.Info("uninstalling")
	w.dayone("cluster", "uninstall", "--yes")
	var kept corev1.ConfigMapList
	require.NoError(t, w.client.List(t.Context(), &kept, client.HasLabels{manifests.LabelBuildRecord}))
	assert.Empty(t, kept.Items, "what was kept goes, too")
}

// eventually runs dayone cluster COMMAND for the pool until it says what is wanted, and gives all that it says.
func (w *world) eventually(command, wanted string) (out string) {
	w.t.Helper()
	args := []string{"cluster", command}
	if command != "status" {
		args = append(args, "worker")
	}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		out = w.dayone(args...)
		assert.Contains(c, out, wanted)
	}, waitLimit, time.Second)
	return out
}

// besideMCO makes what a cluster has in which MCO runs: its kinds, its namespace and Secrets, a pool with a rendered
// config and a node, and a Deployment of its name that runs nowhere. A stand-in for its builder works with its account
// until the test ends.
func (w *world) besideMCO() {
	w.t.Helper()
	crds, err := cluster.CRDs()
	require.NoError(w.t, err)
	for _, crd := range crds {
		w.create(crd)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}})
	push, err := w.cluster.PushSecret(cluster.DefaultNamespace, pushSecret)
	require.NoError(w.t, err)
	w.create(push)
	for _, name := range []string{nodePull, cluster.PullSecretCopy} { // MCO copies the second
		pull, err := w.cluster.PullSecret(cluster.DefaultNamespace, name)
		require.NoError(w.t, err)
		w.create(pull)
	}
	app := map[string]string{"k8s-app": "machine-config-operator"}
	w.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
		Name: "machine-config-operator"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"runs": "nowhere"},
				Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}}}})
	ca, err := os.ReadFile(w.cluster.Registry.CAFile)
	require.NoError(w.t, err)
	w.served(controllerConfig(w.base, ca))
	config := buildtest.Config(w.t, nil)
	config.Name = rendered
	w.served(config)
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	pool.Spec.Configuration.Name = rendered
	w.served(pool)
	pool.Status.Configuration.Name = rendered
	require.NoError(w.t, w.client.Status().Update(w.t.Context(), pool))
	go w.mcosBuilder(w.t.Context())
}

// served makes an object of a kind that the API server begins to serve.
func (w *world) served(o client.Object) {
	w.t.Helper()
	w.await(func(ctx context.Context) bool { return w.client.Create(ctx, o) == nil })
}

// mcosBuilder is the stand-in for MCO's builder, with the name of its account.
func (w *world) mcosBuilder(ctx context.Context) {
	as := rest.CopyConfig(w.cluster.Config)
	as.Impersonate.UserName = "system:serviceaccount:" + cluster.DefaultNamespace + ":" + mcobuilder.Account
	scheme, err := kubetest.NewScheme()
	if !assert.NoError(w.t, err) {
		return
	}
	c, err := client.New(as, client.Options{Scheme: scheme})
	if !assert.NoError(w.t, err) {
		return
	}
	assert.NoError(w.t, w.client.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mco-builder"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: cluster.DefaultNamespace, Name: mcobuilder.Account}}}))
	mco := &mcobuilder.Builder{Client: c, Namespace: cluster.DefaultNamespace,
		Inspect: func(string) bool { return false }} // dayone gives images tags of its own
	for ctx.Err() == nil {
		_ = mco.Step(ctx) // what fails is tried again
		time.Sleep(time.Second)
	}
}
