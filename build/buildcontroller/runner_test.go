package buildcontroller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/manifests"
)

// runner stands in for the Job controller and the kubelet: it makes the pod of a Job and ends it, with the termination
// message that the builder would write. No image is built: the "digest" is a hash over what the Job was given.
type runner struct {
	t      testing.TB
	client client.Client
	images *standInRegistry
	// hold keeps pods running, outcome chooses how the next ones end; nil is success.
	hold    bool
	outcome func(b *batchv1.Job) *build.Failure
	// made is what images are made of, runs counts the Jobs' pods by MachineOSBuild, serial makes forced builds differ.
	made   map[string]made
	runs   map[string]int
	byUID  map[types.UID]int
	serial int
}

func newRunner(t testing.TB, c client.Client, images *standInRegistry) *runner {
	return &runner{t: t, client: c, images: images, made: map[string]made{}, runs: map[string]int{},
		byUID: map[types.UID]int{}}
}

// step gives every Job without a pod one and ends the pods that run.
func (r *runner) step(ctx context.Context) {
	r.t.Helper()
	var jobs batchv1.JobList
	require.NoError(r.t, r.client.List(ctx, &jobs, client.InNamespace(namespace)))
	alive := map[string]bool{}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if j.DeletionTimestamp != nil || suspended(j) || !ownJob(j) {
			continue
		}
		alive[string(j.UID)] = true
		r.one(ctx, j)
	}
	var pods corev1.PodList
	require.NoError(r.t, r.client.List(ctx, &pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && !alive[string(owner.UID)] {
			_ = r.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))
		}
	}
}

func (r *runner) one(ctx context.Context, j *batchv1.Job) {
	var pod corev1.Pod
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: podName(j)}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		r.start(ctx, j)
	case err == nil && pod.Status.Phase == corev1.PodRunning && !r.hold:
		r.end(ctx, j, &pod)
	}
}

// podName differs between Jobs of one name.
func podName(j *batchv1.Job) string { return j.Name + "-" + string(j.UID)[:min(8, len(j.UID))] }

func (r *runner) start(ctx context.Context, j *batchv1.Job) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName(j), Labels: map[string]string{},
		Annotations: j.Spec.Template.Annotations, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j,
			batchv1.SchemeGroupVersion.WithKind("Job"))}},
		Spec: corev1.PodSpec{ServiceAccountName: "dayone-build", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: job.Container, Image: "builder"}}}}
	maps.Copy(pod.Labels, j.Spec.Template.Labels)
	pod.Labels[batchv1.JobNameLabel] = j.Name
	if err := r.client.Create(ctx, pod); err != nil {
		return
	}
	r.runs[j.Annotations[manifests.LabelMachineOSBuild]]++
	r.byUID[metav1.GetControllerOf(j).UID]++
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.Container,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	_ = r.client.Status().Update(ctx, pod)
}

func (r *runner) end(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) {
	result := job.Result{}
	if r.outcome != nil {
		result.Failure = r.outcome(j)
	}
	if result.Failure == nil {
		result.Kernels = []string{"6.1.0-1", "6.1.0-2"}
		var ok bool
		if result.Digest, ok = r.buildImage(ctx, j); !ok {
			return // its inputs are gone: it is being interrupted
		}
	}
	code := int32(result.ExitCode())
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: string(result.Message())}}}}
	if r.client.Status().Update(ctx, pod) != nil || code == 0 {
		return
	}
	now := metav1.Now()
	j.Status.StartTime = &now
	j.Status.Failed = 1
	j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	j.Status.Conditions = append(j.Status.Conditions,
		batchv1.JobCondition{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue,
			Reason: batchv1.JobReasonPodFailurePolicy, LastTransitionTime: now},
		batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonPodFailurePolicy,
			LastTransitionTime: now})
	_ = r.client.Status().Update(ctx, j)
}

// buildImage reads the Job's own objects: what they hold is what the image would be made of.
func (r *runner) buildImage(ctx context.Context, j *batchv1.Job) (string, bool) {
	var order job.Order
	m := made{}
	for _, v := range j.Spec.Template.Spec.Volumes {
		switch {
		case v.Name == job.DirConfig:
			var s corev1.Secret
			if r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v.Projected.Sources[0].Secret.Name}, &s) != nil {
				return "", false
			}
			require.NoError(r.t, json.Unmarshal(s.Data[job.FileOrder], &order))
			config, err := job.Unpack([][]byte{s.Data[job.FilePart+"0"]})
			require.NoError(r.t, err)
			m.file = string(config.Spec.Config.Raw)
		case v.Name == job.DirContainerfile:
			var c corev1.ConfigMap
			if r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v.ConfigMap.Name}, &c) != nil {
				return "", false
			}
			m.text = c.Data[job.FileContainerfile]
		}
	}
	m.base = order.Request.Base.Reference
	r.serial++
	sum := sha256.Sum256([]byte(fmt.Sprintf("%v %d", m, r.serial)))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	order.Request.Config = configOf(m)
	order.Request.Containerfile = m.text
	address, err := order.Request.Address()
	require.NoError(r.t, err)
	r.made[digest] = m
	r.images.push(order.Request.Target+"@"+digest, build.Tag(address))
	return digest, true
}
