package buildjob_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	assets "dayone.dev/dayone/manifests/assets/cluster"
)

func TestBuildsInARealCluster(t *testing.T) {
	w := newWorld(t)
	t.Run("a build gives a digest, and its log outlives its pod", w.with(digest))
	t.Run("a RUN that fails is seen with its line and its output", w.with(failingRUN))
	t.Run("a RUN without memory is told from a fault of its own", w.with(outOfMemory))
	t.Run("a builder image that is not there holds the pod up", w.with(noBuilderImage))
	t.Run("a Job that is deleted in the middle of a RUN leaves nothing", w.with(deletedInTheMiddle))
	t.Run("under a seccomp profile for all pods a build says what it needs, and builds with it", w.with(seccomp))
	t.Run("a privileged pod does not come into the namespace", w.with(privileged))
}

func (w *world) with(test func(*world)) func(*testing.T) {
	return func(t *testing.T) {
		inner := *w
		inner.t = t
		test(&inner)
	}
}

func digest(w *world) {
	began := time.Now()
	b := w.start("FROM configs\nRUN echo this is in the log && cat /proc/self/uid_map && echo built >/usr/lib/built && "+
		"grep Seccomp: /proc/self/status\n", nil)
	limit := w.job(b.Name)
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(limit), limit))
	assert.Equal(w.t, job.DefaultMemoryLimit,
		limit.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String())
	o := w.until(b, terminal)
	w.t.Logf("digest seen %.1f s after the Job was made", time.Since(began).Seconds())
	require.Equal(w.t, machineosbuild.Succeeded, o.State, o.Cause.Text())
	assert.True(w.t, w.isTrue(b, machineosbuild.Succeeded))
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.job(b.Name),
		client.PropagationPolicy(metav1.DeletePropagationForeground)))
	require.Eventually(w.t, func() bool { return len(w.pods(b)) == 0 }, waitLimit, waitEvery)

	access, err := appendengine.NewClient(appendengine.Access{CAFile: w.reg.CAFile, AuthFile: w.reg.PullAuthFile})
	require.NoError(w.t, err)
	defer access.Close()
	image, err := access.Read(w.t.Context(), w.reg.Addr+"/ocp/worker-os@"+o.Digest, "linux/amd64")
	require.NoError(w.t, err)
	assert.Contains(w.t, b.Name, image.Labels()[build.LabelAddress][:32], "the name has the content address")
	log, err := buildlog.Read(w.t.Context(), access, w.reg.Addr+"/ocp/worker-os", b.Name, o.Digest)
	require.NoError(w.t, err)
	assert.Contains(w.t, string(log.Text), "this is in the log")
	assert.Regexp(w.t, `\b0 +1000000 +65536\b`, string(log.Text), "root in RUN is no user of the node")
	assert.Regexp(w.t, `Seccomp:\s+2`, string(log.Text), "RUN is under the builder's own filter")
	assert.Equal(w.t, o.Digest, log.Image)

	require.NotZero(w.t, w.inputs(b))
	require.NoError(w.t, w.client.Delete(w.t.Context(), b))
	require.Eventually(w.t, func() bool { return w.inputs(b) == 0 }, waitLimit, waitEvery,
		"what a build is made of goes with its MachineOSBuild")
}

// inputs counts the Secrets and ConfigMaps of a build.
func (w *world) inputs(b *mcfgv1.MachineOSBuild) int {
	w.t.Helper()
	of := client.MatchingLabels{manifests.LabelMachineOSBuild: manifests.LabelValue(b.Name)}
	var secrets corev1.SecretList
	require.NoError(w.t, w.client.List(w.t.Context(), &secrets, client.InNamespace(assets.DefaultNamespace), of))
	var maps corev1.ConfigMapList
	require.NoError(w.t, w.client.List(w.t.Context(), &maps, client.InNamespace(assets.DefaultNamespace), of))
	return len(secrets.Items) + len(maps.Items)
}

func (w *world) job(build string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: assets.DefaultNamespace, Name: job.JobName(build)}}
}

func failingRUN(w *world) {
	b := w.start("FROM configs\nRUN true\nRUN echo no such package; exit 3\n", nil)
	o := w.until(b, terminal)
	assert.Equal(w.t, machineosbuild.Failed, o.State)
	assert.Equal(w.t, build.ClassUser, o.Cause.Class)
	assert.Equal(w.t, 3, o.Cause.Line)
	assert.Equal(w.t, 3, o.Cause.ExitCode, "the command's own exit code")
	assert.Contains(w.t, strings.Join(o.Cause.Excerpt, "\n"), "no such package")
	assert.Len(w.t, w.pods(b), 1, "a user's fault is tried once")
	assert.Equal(w.t, o.Cause, machineosbuild.CauseOf(b), "the cause is in the API")
}

func outOfMemory(w *world) {
	b := w.start("FROM configs\nRUN dd if=/dev/zero of=/dev/null bs=700M count=1\n", func(o *job.Options) {
		o.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(
			"300Mi")}}
		o.BackoffLimit = -1
	})
	o := w.until(b, terminal)
	assert.Equal(w.t, machineosbuild.Failed, o.State)
	assert.Equal(w.t, job.ReasonMemory, o.Cause.Reason, o.Cause.Text())
	assert.Contains(w.t, o.Cause.Message, "300Mi")
	assert.Equal(w.t, build.ClassPolicy, o.Cause.Class)
}

func noBuilderImage(w *world) {
	b := w.start("FROM configs\n# nothing\n", func(o *job.Options) {
		o.BuilderImage = o.BuilderImage[:len(o.BuilderImage)-4] + "0000"
	})
	o := w.until(b, func(o job.Observation) bool { return o.Stuck })
	assert.Equal(w.t, machineosbuild.Prepared, o.State)
	assert.Contains(w.t, o.Cause.Next, "pull the builder image")
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.job(b.Name),
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
	o = w.until(b, terminal)
	assert.NotEqual(w.t, machineosbuild.Succeeded, o.State)
}

func deletedInTheMiddle(w *world) {
	b := w.start("FROM configs\nRUN echo at work; (sleep 600 &); sleep 600\n", nil)
	w.until(b, func(o job.Observation) bool { return o.State == machineosbuild.Building })
	require.Eventually(w.t, func() bool { return strings.Contains(w.nodeProcesses(), "sleep") }, waitLimit, waitEvery,
		"the build comes to its RUN")
	began := time.Now()
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.job(b.Name),
		client.PropagationPolicy(metav1.DeletePropagationForeground)))
	require.Eventually(w.t, func() bool { return len(w.pods(b)) == 0 }, waitLimit, waitEvery, "the pod is gone")
	w.t.Logf("pod gone %.1f s after the Job was deleted", time.Since(began).Seconds())
	assert.Empty(w.t, w.nodeProcesses(), "no process of the build is left on the node")
	mounts, err := w.cluster.NodeExec(w.t.Context(), "cat", "/proc/mounts").Output()
	require.NoError(w.t, err)
	assert.NotContains(w.t, string(mounts), job.DirWork+"/state", "no mount of the build is left on the node")
	assert.Equal(w.t, machineosbuild.Interrupted, w.observe(b).State)
}

// nodeProcesses are the arguments of the node's processes whose user is the builder's worker or what it started.
func (w *world) nodeProcesses() string {
	w.t.Helper()
	const list = `for p in /proc/[0-9]*; do
		if grep -q "^Uid:.1000000" $p/status 2>/dev/null; then tr "\0" " " <$p/cmdline; echo; fi
	done`
	out, err := w.cluster.NodeExec(w.t.Context(), "sh", "-c", list).Output()
	require.NoError(w.t, err)
	return strings.TrimSpace(string(out))
}

// kubeletRoot finds the kubelet's directory by its arguments.
const kubeletRoot = `cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" | sed -n 's/^--root-dir=//p' | head -n 1`

func seccomp(w *world) {
	w.change = func(j *batchv1.Job) { // as a kubelet with seccompDefault does
		c := j.Spec.Template.Spec.Containers[0].SecurityContext
		if c.SeccompProfile == nil {
			c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
		}
	}
	const containerfile = "FROM configs\nRUN grep Seccomp: /proc/self/status\n"
	b := w.start(containerfile, nil)
	o := w.until(b, terminal)
	require.Equal(w.t, machineosbuild.Failed, o.State)
	assert.Contains(w.t, o.Cause.Next, "seccomp profile that allows it")
	assert.Len(w.t, w.pods(b), 1)

	install := w.cluster.NodeExec(w.t.Context(), "sh", "-c",
		"set -e; f=$("+kubeletRoot+")/seccomp/"+job.SeccompFile+"; mkdir -p $(dirname $f); cat >$f")
	install.Stdin = bytes.NewReader(job.SeccompProfile())
	out, err := install.CombinedOutput()
	require.NoError(w.t, err, string(out))
	b = w.start(containerfile, func(o *job.Options) { o.SeccompLocalhost = job.SeccompFile })
	o = w.until(b, terminal)
	require.Equal(w.t, machineosbuild.Succeeded, o.State, o.Cause.Text())
	access, err := appendengine.NewClient(appendengine.Access{CAFile: w.reg.CAFile, AuthFile: w.reg.PullAuthFile})
	require.NoError(w.t, err)
	defer access.Close()
	log, err := buildlog.Read(w.t.Context(), access, w.reg.Addr+"/ocp/worker-os", b.Name, o.Digest)
	require.NoError(w.t, err)
	assert.Regexp(w.t, `Seccomp:\s+2`, string(log.Text), "the profile holds in RUN")
}

func privileged(w *world) {
	b := w.start("FROM configs\n# privileged\n", func(o *job.Options) { o.Privileged = true })
	require.Eventually(w.t, func() bool {
		var events corev1.EventList
		require.NoError(w.t, w.client.List(w.t.Context(), &events, client.InNamespace(assets.DefaultNamespace)))
		for _, e := range events.Items {
			if e.InvolvedObject.Name == job.JobName(b.Name) && strings.Contains(e.Message, "violates PodSecurity") {
				return true
			}
		}
		return false
	}, waitLimit, waitEvery, "Pod Security refuses it")
	assert.Empty(w.t, w.pods(b))
}
