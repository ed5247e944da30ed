package incluster_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	// A build takes seconds; a very busy machine may take minutes.
	waitLimit = 5 * time.Minute
	waitEvery = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	kubecluster.Init()
	os.Exit(m.Run())
}

const layered = `FROM configs AS final
RUN echo built-in-a-pod > /etc/from-run && id -u
`

// slow gives time to end programs while it is built.
const slow = `FROM configs AS final
RUN sleep 5 && echo slowly > /etc/from-run
`

// failing breaks in RUN, at its line 3, after output that a reader needs.
const failing = `FROM configs AS final
RUN true
RUN echo the package mirror says no >&2; exit 7
`

func TestBuildInTheCluster(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.install()
	key := w.signingKey()
	w.pool("worker")
	w.machineOSConfig("worker", layered)

	w.log.Info("asked for an image")
	b := w.ended("worker", func(b *mcfgv1.MachineOSBuild) bool { return true })
	require.Equal(t, machineosbuild.Succeeded, machineosbuild.StateOf(b), w.explain())
	image := string(b.Status.DigestedImagePushSpec)
	require.Regexp(t, `^registry\.dayone\.test:5000/os/worker@sha256:[0-9a-f]{64}$`, image)
	mosc := w.settled("worker",
		func(c *mcfgv1.MachineOSConfig) bool { return string(c.Status.CurrentImagePullSpec) == image })
	assert.Equal(t, b.Name, mosc.Status.MachineOSBuild.Name)
	assert.True(t, meta.IsStatusConditionTrue(mosc.Status.Conditions, buildcontroller.ConditionAvailable), "%v",
		mosc.Status.Conditions)
	assert.False(t, meta.IsStatusConditionTrue(mosc.Status.Conditions, buildcontroller.ConditionDegraded), "%v",
		mosc.Status.Conditions)

	w.log.Info("image is there")
	files := w.files(image)
	assert.Equal(t, "built-in-a-pod\n", files["etc/from-run"], "RUN has run")
	assert.Equal(t, "config\n", files["etc/from-config"], "the rendered config is in the image")
	assert.True(t, w.builtOn(image, w.base), "the base's layers are those of the base")
	w.vouched(key, image)
	w.leastPrivileges()

	w.log.Info("ending the builder")
	// The same content needs no build: a builder that starts anew finds it.
	w.restartBuilder(false)
	w.settled("worker", func(c *mcfgv1.MachineOSConfig) bool { return string(c.Status.CurrentImagePullSpec) == image })
	var builds mcfgv1.MachineOSBuildList
	require.NoError(t, w.client.List(ctx, &builds))
	assert.Len(t, builds.Items, 1)

	w.log.Info("asking for another image, ending programs meanwhile")
	// The builder is ended and the API server crashes while a pod builds: the build is neither lost nor begun again.
	w.edit("worker", slow)
	w.await(func(ctx context.Context) bool {
		var pods corev1.PodList
		require.NoError(t, w.client.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace),
			client.HasLabels{batchv1.JobNameLabel}))
		return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	})
	w.rememberJobs(ctx)
	require.NoError(t, w.cluster.Kill(ctx, kubecluster.APIServer))
	require.NoError(t, w.cluster.Start(ctx, kubecluster.APIServer))
	require.NoError(t, w.cluster.WaitReady(ctx))
	w.restartBuilder(true)
	b = w.ended("worker", func(n *mcfgv1.MachineOSBuild) bool { return n.Name != b.Name })
	require.Equal(t, machineosbuild.Succeeded, machineosbuild.StateOf(b), w.explain())
	w.settled("worker", func(c *mcfgv1.MachineOSConfig) bool {
		return c.Status.CurrentImagePullSpec == b.Status.DigestedImagePushSpec
	})
	require.NoError(t, w.client.List(ctx, &builds))
	assert.Len(t, builds.Items, 2)
	assert.Len(t, w.jobs, 2, "one Job for each of them")
	image = string(b.Status.DigestedImagePushSpec)
	assert.Equal(t, "slowly\n", w.files(image)["etc/from-run"])
	succeeded := b

	w.log.Info("asking for an image that cannot be built")
	// A Containerfile whose RUN fails: the conditions say where and what it said, and the image in use stays.
	w.edit("worker", failing)
	b = w.ended("worker",
		func(n *mcfgv1.MachineOSBuild) bool { return machineosbuild.StateOf(n) == machineosbuild.Failed })
	require.Equal(t, machineosbuild.Failed, machineosbuild.StateOf(b), w.explain())
	cause := machineosbuild.CauseOf(b)
	assert.Equal(t, 3, cause.Line, "%+v", cause)
	assert.Contains(t, cause.Text(), "the package mirror says no")
	mosc = w.settled("worker", func(c *mcfgv1.MachineOSConfig) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, buildcontroller.ConditionDegraded)
	})
	assert.Contains(t, meta.FindStatusCondition(mosc.Status.Conditions, buildcontroller.ConditionDegraded).
		Message, "the package mirror says no")
	assert.Equal(t, image, string(mosc.Status.CurrentImagePullSpec), "the image in use stays")
	assert.Contains(t, w.dayone("cluster", "logs", "worker"), "the package mirror says no",
		"the pod has the log where only the cluster knows the registry")
	w.gathered()

	w.log.Info("mending it")
	// Mended: the build that succeeded is found again.
	w.edit("worker", slow)
	mosc = w.settled("worker", func(c *mcfgv1.MachineOSConfig) bool {
		return !meta.IsStatusConditionTrue(c.Status.Conditions, buildcontroller.ConditionDegraded)
	})
	assert.Equal(t, image, string(mosc.Status.CurrentImagePullSpec))
	assert.Equal(t, succeeded.Name, mosc.Status.MachineOSBuild.Name)

	// A MachineConfig of the pool changes: rendered anew, the image has it.
	w.log.Info("asking for another configuration")
	w.reconfigure("/etc/from-later", "later")
	mosc = w.settled("worker",
		func(c *mcfgv1.MachineOSConfig) bool { return string(c.Status.CurrentImagePullSpec) != image })
	assert.Equal(t, "later", w.files(string(mosc.Status.CurrentImagePullSpec))["etc/from-later"])

	w.log.Info("demanding a stranger's signature of the base")
	w.policyOfStrangers("worker", string(mosc.Status.CurrentImagePullSpec))

	w.log.Info("opting out")
	w.optOut("worker")
	w.log.Info("uninstalling")
	w.dayone("cluster", "uninstall", "--yes")
	var deployments appsv1.DeploymentList
	require.NoError(t, w.client.List(ctx, &deployments))
	assert.Empty(t, deployments.Items)
}

// optOut deletes the last MachineOSConfig: the builder ends when nothing of its is left, and what was copied for it
// goes.
func (w *world) optOut(pool string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Delete(w.t.Context(),
		&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}}))
	w.await(func(ctx context.Context) bool {
		var builder appsv1.Deployment
		return apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: cluster.Builder}, &builder))
	})
	var builds mcfgv1.MachineOSBuildList
	require.NoError(w.t, w.client.List(w.t.Context(), &builds))
	assert.Empty(w.t, builds.Items)
	var jobs batchv1.JobList
	require.NoError(w.t, w.client.List(w.t.Context(), &jobs))
	assert.Empty(w.t, jobs.Items)
	// The copies go right after the builder.
	own, names := []string{pushSecret, nodePull, cluster.SigningKey}, []string{}
	w.await(func(ctx context.Context) bool {
		var secrets corev1.SecretList
		if w.client.List(ctx, &secrets, client.InNamespace(cluster.DefaultNamespace)) != nil {
			return false
		}
		names = names[:0]
		for _, s := range secrets.Items {
			names = append(names, s.Name)
		}
		return len(names) <= len(own)
	})
	assert.ElementsMatch(w.t, own, names, "the user's own stay")
}

// leastPrivileges looks at what the API server let in, which refuses more in this namespace.
func (w *world) leastPrivileges() {
	require.NotEmpty(w.t, w.jobs)
	var namespace corev1.Namespace
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Name: cluster.DefaultNamespace}, &namespace))
	assert.Equal(w.t, "baseline", namespace.Labels["pod-security.kubernetes.io/enforce"])
	for _, j := range w.jobs {
		pod := j.Spec.Template.Spec
		assert.Equal(w.t, cluster.BuildServiceAccount, pod.ServiceAccountName)
		assert.False(w.t, *pod.AutomountServiceAccountToken)
		security := pod.Containers[0].SecurityContext
		assert.Equal(w.t, job.Container, pod.Containers[0].Name)
		assert.False(w.t, *security.AllowPrivilegeEscalation)
		assert.Equal(w.t, []corev1.Capability{"ALL"}, security.Capabilities.Drop)
		assert.Equal(w.t, []corev1.Capability{"SETUID", "SETGID"}, security.Capabilities.Add)
	}
}

// ended waits until a build of the pool that is wanted has ended.
func (w *world) ended(pool string, wanted func(*mcfgv1.MachineOSBuild) bool) *mcfgv1.MachineOSBuild {
	w.t.Helper()
	var found *mcfgv1.MachineOSBuild
	w.await(func(ctx context.Context) bool {
		var builds mcfgv1.MachineOSBuildList
		if w.client.List(ctx, &builds) != nil {
			return false
		}
		for _, b := range builds.Items {
			s := machineosbuild.StateOf(&b)
			if b.Spec.MachineOSConfig.Name == pool && wanted(&b) &&
				(s == machineosbuild.Succeeded || s == machineosbuild.Failed) {
				found = &b
				return true
			}
		}
		return false
	})
	return found
}

// rememberJobs keeps what there was: Jobs go when they have ended and their builds are done with.
func (w *world) rememberJobs(ctx context.Context) {
	var jobs batchv1.JobList
	if w.client.List(ctx, &jobs, client.InNamespace(cluster.DefaultNamespace)) == nil {
		for _, j := range jobs.Items {
			w.jobs[j.Name] = j
		}
	}
}

// settled waits until the MachineOSConfig is as wanted.
func (w *world) settled(name string, wanted func(*mcfgv1.MachineOSConfig) bool) *mcfgv1.MachineOSConfig {
	w.t.Helper()
	var c mcfgv1.MachineOSConfig
	w.await(func(ctx context.Context) bool {
		return w.client.Get(ctx, client.ObjectKey{Name: name}, &c) == nil && wanted(&c)
	})
	return &c
}

// await looks until done, and shows the whole cluster when that does not come.
func (w *world) await(done func(ctx context.Context) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	defer cancel()
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for !done(ctx) {
		w.rememberJobs(ctx) // whatever is waited for: a Job may be gone before anybody asks for its end
		select {
		case <-ctx.Done():
			require.FailNow(w.t, "what is waited for does not come", w.explain())
		case <-tick.C:
		}
	}
}
