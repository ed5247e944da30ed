package incluster_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
)

// newer is another version of the programs, one minor after version.
const newer = "v0.1.0-test"

// held is how long a held build sleeps unless it is let go: more than a day, and nobody else's number.
var held = strconv.Itoa(1_000_000 + os.Getpid())

// holding is a Containerfile whose RUN waits until letGo, and then writes a word.
func holding(word string) string {
	return "FROM configs AS final\nRUN sleep " + held + "; echo " + word + " > /etc/from-run\n"
}

// letGo ends the sleep of a held build, which is a process of this machine like all others.
func (w *world) letGo() {
	w.t.Helper()
	w.await(func(context.Context) bool {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range lines {
			raw, _ := os.ReadFile(file)
			if string(raw) != "sleep\x00"+held+"\x00" {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			return err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil
		}
		return false
	})
}

// TestDayoneIsReplacedWhilePodsBuild upgrades dayone to a newer version and takes it back, each time while a pod
// builds: the pod goes on, its result is taken by the other version, no build is begun again and no config is rendered
// anew.
func TestDayoneIsReplacedWhilePodsBuild(t *testing.T) {
	w := newWorld(t)
	w.install()
	mark := []byte(`{"metadata":{"annotations":{"` + manifests.AnnotationStandalone + `":""}}}`)
	require.NoError(t, w.client.Patch(t.Context(), &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{
		Name: render.ControllerConfigName}}, client.RawPatch("application/merge-patch+json", mark)))
	w.pool("worker")
	w.machineOSConfig("worker", holding("before"))
	first := w.buildRuns()
	shown := regexp.MustCompile(`(?m)^Building +worker-\S+ +[\dms.]+ +LINE 2: RUN sleep ` + held)
	w.await(func(context.Context) bool { return shown.MatchString(w.dayone("cluster", "status", "--nodes")) })
	rendered := kubetest.RenderedConfigs(w.t, w.client)
	require.NotEmpty(t, rendered)
	w.replacedBy(newer)
	w.letGo()
	b := w.ended("worker", func(*mcfgv1.MachineOSBuild) bool { return true })
	w.builtOnce(b, first, "before\n", 1)

	w.edit("worker", holding("after"))
	second := w.buildRuns()
	w.replacedBy(version)
	w.letGo()
	b = w.ended("worker", func(n *mcfgv1.MachineOSBuild) bool { return n.Name != b.Name })
	w.builtOnce(b, second, "after\n", 2)
	assert.Equal(t, rendered, kubetest.RenderedConfigs(w.t, w.client), "nothing is rendered anew")
	assert.NotContains(t, w.dayone("cluster", "status"), "RenderDegraded")
}

// buildRuns waits until a pod builds and gives its Job.
func (w *world) buildRuns() *batchv1.Job {
	w.t.Helper()
	j := &batchv1.Job{}
	w.await(func(ctx context.Context) bool {
		var pods corev1.PodList
		if w.client.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace),
			client.HasLabels{batchv1.JobNameLabel}) != nil {
			return false
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		return i >= 0 && w.client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace,
			Name: pods.Items[i].Labels[batchv1.JobNameLabel]}, j) == nil
	})
	return j
}

// replacedBy lets an administrator upgrade dayone to a version, or back to it, and waits until nothing of another one
// runs.
func (w *world) replacedBy(version string) {
	w.t.Helper()
	images := map[string]string{cluster.Controller: w.imageOf("dayone-controller", version),
		cluster.Builder: w.imageOf("machine-os-builder", version)}
	w.dayone("cluster", "upgrade", "--image", "controller="+images[cluster.Controller],
		"--image", "builder="+images[cluster.Builder])
	w.await(func(ctx context.Context) bool {
		for name, image := range images {
			var d appsv1.Deployment
			var pods corev1.PodList
			if w.client.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, &d) != nil ||
				d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas != *d.Spec.Replicas ||
				w.client.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(
					d.Spec.Selector.MatchLabels)) != nil || len(pods.Items) != int(*d.Spec.Replicas) ||
				slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.Containers[0].Image != image }) {
				return false
			}
		}
		return true
	})
	w.log.WithField("version", version).Info("replaced")
}

// builtOnce says that a build has ended well in the pod that had begun it, and that there are so many builds in all.
func (w *world) builtOnce(b *mcfgv1.MachineOSBuild, job *batchv1.Job, content string, builds int) {
	w.t.Helper()
	require.Equal(w.t, machineosbuild.Succeeded, machineosbuild.StateOf(b), w.explain())
	image := string(b.Status.DigestedImagePushSpec)
	w.settled("worker", func(c *mcfgv1.MachineOSConfig) bool { return string(c.Status.CurrentImagePullSpec) == image })
	assert.Equal(w.t, content, w.files(image)["etc/from-run"])
	var all mcfgv1.MachineOSBuildList
	require.NoError(w.t, w.client.List(w.t.Context(), &all))
	assert.Len(w.t, all.Items, builds)
	assert.Len(w.t, w.jobs, builds, "one Job for each")
	has := w.jobs[job.Name]
	assert.Equal(w.t, job.UID, has.UID, "the Job that had begun")
	assert.Zero(w.t, has.Status.Failed, "its pod was not ended")
}
