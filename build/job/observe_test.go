package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func jobWith(kind batchv1.JobConditionType, reason, message string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "build-a", UID: "job"}}
	if kind != "" {
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason,
			Message: message}}
	}
	return j
}

// podWith is a pod of that Job; seconds say when it was made.
func podWith(seconds int, phase corev1.PodPhase, state corev1.ContainerState) corev1.Pod {
	yes := true
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "build-a-x", CreationTimestamp: metav1.NewTime(time.Unix(int64(seconds), 0)),
			OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: job.Container,
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}}}}},
		Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: job.Container,
			State: state}}},
	}
}

func ended(seconds int, code int32, reason string, message []byte) corev1.Pod {
	phase := corev1.PodFailed
	if code == 0 {
		phase = corev1.PodSucceeded
	}
	return podWith(seconds, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code,
		Reason: reason, Message: string(message)}})
}

func waits(reason, message string) corev1.Pod {
	return podWith(1, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason,
		Message: message}})
}

func running(seconds int) corev1.Pod {
	return podWith(seconds, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func unschedulable() corev1.Pod {
	p := podWith(1, corev1.PodPending, corev1.ContainerState{})
	p.Status.ContainerStatuses = nil
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: "Unschedulable", Message: "0/3 nodes are available"}}
	return p
}

func evicted(message string) corev1.Pod {
	p := ended(1, 137, "Error", nil)
	p.Status.Reason, p.Status.Message = "Evicted", message
	return p
}

func strange() corev1.Pod {
	yes, p := true, ended(9, 0, "Completed", job.Result{Digest: digest}.Message())
	p.OwnerReferences = []metav1.OwnerReference{{UID: "another", Controller: &yes}}
	return p
}

func deleted(j *batchv1.Job) *batchv1.Job {
	now := metav1.Now()
	j.DeletionTimestamp = &now
	return j
}

var userFailure = job.Result{Failure: &build.Failure{Class: build.ClassUser, Step: "containerfile", Line: 3,
	Instruction: "RUN false", ExitCode: 1,
	Message: "the command failed", Excerpt: []string{"no such package"}, Next: "mend it"}}

var transient = job.Result{Failure: &build.Failure{Class: build.ClassTransient, Step: "push",
	Message: "connection refused", Next: "look"}, Log: "r/x@" + digest}

func TestObserve(t *testing.T) {
	type want struct {
		state   machineosbuild.State
		reason  string
		class   build.Class
		stuck   bool
		message string
	}
	for _, c := range []struct {
		name string
		job  *batchv1.Job
		pods []corev1.Pod
		want want
	}{
		{"no Job", nil, nil, want{state: machineosbuild.Interrupted, reason: "JobDeleted", message: "was deleted"}},
		{"a Job that is new", jobWith("", "", ""), nil,
			want{state: machineosbuild.Prepared, reason: "Waiting", message: "no pod yet"}},
		{"a pod that is pulling", jobWith("", "", ""), []corev1.Pod{waits("ContainerCreating", "")},
			want{state: machineosbuild.Prepared, reason: "Waiting"}},
		{"a pod of another Job", jobWith("", "", ""), []corev1.Pod{strange()},
			want{state: machineosbuild.Prepared, reason: "Waiting"}},
		{"an image that cannot be pulled", jobWith("", "", ""), []corev1.Pod{waits("ImagePullBackOff", "401 Unauthorized")},
			want{machineosbuild.Prepared, "ImagePullBackOff", build.ClassInfrastructure, true, "401 Unauthorized"}},
		{"a Secret that is missing", jobWith("", "", ""),
			[]corev1.Pod{waits("CreateContainerConfigError", `secret "final-a" not found`)},
			want{machineosbuild.Prepared, "CreateContainerConfigError", build.ClassInfrastructure, true, "final-a"}},
		{"no node of this architecture", jobWith("", "", ""), []corev1.Pod{unschedulable()},
			want{machineosbuild.Prepared, "Unschedulable", build.ClassInfrastructure, true, "0/3 nodes"}},
		{"a pod at work", jobWith("", "", ""), []corev1.Pod{running(1)},
			want{state: machineosbuild.Building, reason: "Running", message: "node-1"}},
		{"a second pod after a failure", jobWith("", "", ""), []corev1.Pod{ended(1, 75, "Error", transient.Message()),
			running(2)}, want{state: machineosbuild.Building, reason: "Running"}},
		{"the wait for a second pod", jobWith("", "", ""), []corev1.Pod{ended(1, 75, "Error", transient.Message())},
			want{machineosbuild.Building, "Retrying", build.ClassTransient, false, "connection refused"}},
		{"a digest before the Job is complete", jobWith("", "", ""), []corev1.Pod{ended(1, 75, "Error", transient.Message()),
			ended(2, 0, "Completed", job.Result{Digest: digest}.Message())},
			want{state: machineosbuild.Succeeded, reason: "Succeeded"}},
		{"a reused image", jobWith(batchv1.JobComplete, "", ""),
			[]corev1.Pod{ended(1, 0, "Completed", job.Result{Digest: digest, Reused: true, Reason: "it is there"}.Message())},
			want{state: machineosbuild.Succeeded, reason: "Reused", message: "it is there"}},
		{"a digest that is lost", jobWith(batchv1.JobComplete, "", ""), nil, want{machineosbuild.Failed, "ResultLost",
			build.ClassTransient, false, "before its digest was read"}},
		{"a user's fault", jobWith(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy, ""),
			[]corev1.Pod{ended(1, 42, "Error", userFailure.Message())},
			want{machineosbuild.Failed, "ContainerfileFailed", build.ClassUser, false, "the command failed"}},
		{"a Job that is about to fail", jobWith(batchv1.JobFailureTarget, batchv1.JobReasonPodFailurePolicy, ""),
			[]corev1.Pod{ended(1, 42, "Error", userFailure.Message())},
			want{machineosbuild.Failed, "ContainerfileFailed", build.ClassUser, false, ""}},
		{"all attempts used up", jobWith(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, ""),
			[]corev1.Pod{ended(1, 75, "Error", nil), ended(3, 75, "Error", transient.Message()), ended(2, 75, "Error", nil)},
			want{machineosbuild.Failed, "PushFailed", build.ClassTransient, false, "connection refused"}},
		{"a Job over its deadline", jobWith(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "Job was active longer"),
			nil,
			want{machineosbuild.Failed, "DeadlineExceeded", build.ClassPolicy, false, "Job was active longer"}},
		{"a deadline over an image that cannot be pulled", jobWith(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, ""),
			[]corev1.Pod{waits("ErrImagePull", "x509: unknown authority")},
			want{machineosbuild.Failed, "DeadlineExceeded", build.ClassPolicy, false, "x509"}},
		{"a RUN out of memory", jobWith(batchv1.JobFailed, "", ""),
			[]corev1.Pod{ended(1, 42, "OOMKilled", userFailure.Message())},
			want{machineosbuild.Failed, job.ReasonMemory, build.ClassPolicy, false, "limit 512Mi"}},
		{"a builder out of memory", jobWith(batchv1.JobFailed, "", ""), []corev1.Pod{ended(1, 137, "OOMKilled", nil)},
			want{machineosbuild.Failed, job.ReasonMemory, build.ClassPolicy, false, "signal 9"}},
		{"scratch space over its limit", jobWith(batchv1.JobFailed, "", ""),
			[]corev1.Pod{evicted(`Usage of EmptyDir volume "work" exceeds the limit "100Mi". `)},
			want{machineosbuild.Failed, "Evicted", build.ClassPolicy, false, "exceeds the limit"}},
		{"a node without memory", jobWith(batchv1.JobFailed, "", ""),
			[]corev1.Pod{evicted("The node was low on resource: memory.")},
			want{machineosbuild.Failed, "Evicted", build.ClassTransient, false, "low on resource"}},
		{"a pod that was killed", jobWith(batchv1.JobFailed, "", ""), []corev1.Pod{ended(1, 137, "Error", nil)},
			want{machineosbuild.Failed, "Killed", build.ClassTransient, false, "signal 9"}},
		{"a program that is not there", jobWith(batchv1.JobFailed, "", ""),
			[]corev1.Pod{ended(1, 128, "StartError", []byte("exec: machine-os-builder: not found"))},
			want{machineosbuild.Failed, "Killed", build.ClassTransient, false, "not found"}},
		{"a fault that cannot be read", jobWith(batchv1.JobFailed, "", ""),
			[]corev1.Pod{ended(1, 42, "Error", []byte(`{"failure":{"cla`))}, want{machineosbuild.Failed, "ResultLost",
				build.ClassInfrastructure, false, ""}},
		{"a Job whose pods are gone", jobWith(batchv1.JobFailed, "BackoffLimitExceeded", "Job has reached"), nil,
			want{machineosbuild.Failed, "BackoffLimitExceeded", build.ClassInfrastructure, false, "Job has reached"}},
		{"a Job that is deleted", deleted(jobWith("", "", "")), []corev1.Pod{running(1)},
			want{state: machineosbuild.Interrupted, reason: "JobDeleted"}},
		{"a Job deleted after its digest", deleted(jobWith("", "", "")),
			[]corev1.Pod{ended(1, 0, "Completed", job.Result{Digest: digest}.Message())},
			want{state: machineosbuild.Succeeded, reason: "Succeeded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := job.Observe(c.job, c.pods)
			assert.Equal(t, c.want.state, o.State)
			assert.Equal(t, c.want.reason, o.Cause.Reason)
			assert.Equal(t, c.want.class, o.Cause.Class)
			assert.Equal(t, c.want.stuck, o.Stuck, "stuck")
			assert.Contains(t, o.Cause.Message, c.want.message)
			assert.Equal(t, c.want.state == machineosbuild.Succeeded, o.Digest == digest)
			if c.want.state == machineosbuild.Failed {
				assert.NotEmpty(t, o.Cause.Next, "it says what to do")
			}
		})
	}
}

func TestObserveKernels(t *testing.T) {
	o := job.Observe(jobWith("", "", ""), []corev1.Pod{ended(1, 0, "Completed",
		job.Result{Digest: digest, Kernels: []string{"6.1.0"}}.Message())})
	assert.Equal(t, []string{"6.1.0"}, o.Kernels)
}

func TestObserveUserFault(t *testing.T) {
	o := job.Observe(jobWith(batchv1.JobFailed, "", ""), []corev1.Pod{ended(1, 42, "Error", userFailure.Message())})
	assert.Equal(t, machineosbuild.Cause{Reason: "ContainerfileFailed", Class: build.ClassUser, Line: 3,
		Instruction: "RUN false", ExitCode: 1,
		Message: "the command failed", Excerpt: []string{"no such package"}, Next: "mend it"}, o.Cause)
}

func TestMessagesFit(t *testing.T) {
	long := strings.Repeat("é\"\n<", 5000)
	f := &build.Failure{Class: build.ClassUser, Step: "containerfile", Line: 1, Message: long, Instruction: long,
		Next: long, Log: "/state/x"}
	for range 40 {
		f.Excerpt = append(f.Excerpt, long)
	}
	f.Excerpt = append(f.Excerpt, "the last line")
	for name, r := range map[string]job.Result{
		"a long failure":         {Failure: f},
		"a long reason":          {Digest: digest, Reason: long},
		"a failure and a digest": {Digest: digest, Reason: long, Failure: f},
	} {
		raw := r.Message()
		assert.LessOrEqual(t, len(raw), job.MaxMessage, name)
		back, err := job.ParseResult(string(raw))
		require.NoError(t, err, name)
		assert.Equal(t, r.Digest, back.Digest)
		if r.Failure != nil {
			assert.Equal(t, build.ClassUser, back.Failure.Class)
			assert.Empty(t, back.Failure.Log)
			require.NotEmpty(t, back.Failure.Excerpt, name)
			assert.Equal(t, "the last line", back.Failure.Excerpt[len(back.Failure.Excerpt)-1])
		}
	}
	assert.Equal(t, "/state/x", f.Log, "what was given stays")
	back, err := job.ParseResult(string(job.Result{Digest: digest, Reason: "x"}.Message()[:100]))
	require.NoError(t, err, "a message that was cut still has its digest")
	assert.Equal(t, digest, back.Digest)
	_, err = job.ParseResult(`{"digest":"sha256:short"}`)
	assert.Error(t, err)
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		name string
		r    job.Result
		want int
	}{
		{"an image", job.Result{Digest: digest}, 0},
		{"nothing", job.Result{}, 75},
		{"a user's fault", job.Result{Failure: &build.Failure{Class: build.ClassUser}}, 42},
		{"a limit", job.Result{Failure: &build.Failure{Class: build.ClassPolicy}}, 42},
		{"a registry that refuses", job.Result{Failure: &build.Failure{Class: build.ClassInfrastructure, Step: "push"}},
			42},
		{"a full disk", job.Result{Failure: &build.Failure{Class: build.ClassInfrastructure,
			Step: "containerfile"}}, 75},
		{"a registry without answer", job.Result{Failure: &build.Failure{Class: build.ClassTransient, Step: "base"}}, 75},
	} {
		assert.Equal(t, c.want, c.r.ExitCode(), c.name)
	}
}

func FuzzParseResult(f *testing.F) {
	f.Add(string(userFailure.Message()))
	f.Add(string(job.Result{Digest: digest}.Message()[:90]))
	f.Fuzz(func(t *testing.T, message string) {
		r, err := job.ParseResult(message)
		if err != nil {
			return
		}
		assert.LessOrEqual(t, len(r.Message()), job.MaxMessage)
		again, err := job.ParseResult(string(r.Message()))
		require.NoError(t, err)
		assert.Equal(t, r.Digest, again.Digest)
	})
}
