package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

// Reasons of a Cause beside those of Kubernetes (ErrImagePull, Evicted, DeadlineExceeded, Unschedulable …).
const (
	reasonSucceeded = "Succeeded"
	reasonReused    = "Reused"
	reasonWaiting   = "Waiting"
	reasonRunning   = "Running"
	reasonRetrying  = "Retrying"
	ReasonDeleted   = "JobDeleted"
	ReasonMemory    = "OutOfMemory"
	reasonKilled    = "Killed"
	reasonLost      = "ResultLost"
)

// Observation is what a Job and its pods say about a build.
type Observation struct {
	State machineosbuild.State
	// Digest is the image's when State is Succeeded.
	Digest string
	// Kernels are the names of its kernels; absent: they are not known.
	Kernels []string
	// Cause is why the build is in this state, with one word for programs. It also says what holds up a running build.
	Cause machineosbuild.Cause
	// Stuck means that the pod cannot start, for the reason in Cause. The Job would wait for its deadline.
	Stuck bool
}

// Observe reads a Job and its pods; pods of other Jobs do not count. A build without its Job is interrupted.
func Observe(job *batchv1.Job, pods []corev1.Pod) Observation {
	if job == nil {
		return Observation{State: machineosbuild.Interrupted,
			Cause: machineosbuild.Cause{Reason: ReasonDeleted, Message: "the build's Job was deleted"}}
	}
	own := podsOf(job, pods)
	for _, p := range own {
		if o, ok := succeeded(p); ok {
			return o
		}
	}
	return unfinished(job, own)
}

// podsOf sorts the Job's pods, the newest first.
func podsOf(job *batchv1.Job, pods []corev1.Pod) []*corev1.Pod {
	var own []*corev1.Pod
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner != nil && owner.UID != job.UID {
			continue
		}
		own = append(own, &pods[i])
	}
	slices.SortStableFunc(own, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	return own
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// succeeded looks for a digest: it is there seconds before the Job is complete.
func succeeded(p *corev1.Pod) (Observation, bool) {
	t := terminated(p)
	if t == nil || t.ExitCode != ExitOK {
		return Observation{}, false
	}
	r, err := ParseResult(t.Message)
	if err != nil || r.Digest == "" {
		return Observation{}, false
	}
	cause := machineosbuild.Cause{Reason: reasonSucceeded, Log: r.Log,
		Message: "The image is ready: " + cmp.Or(r.Reason, "it was built")}
	if r.Reused {
		cause.Reason = reasonReused
	}
	return Observation{State: machineosbuild.Succeeded, Digest: r.Digest, Kernels: r.Kernels, Cause: cause}, true
}

// unfinished is about a Job without a digest.
func unfinished(job *batchv1.Job, pods []*corev1.Pod) Observation {
	if c := condition(job, batchv1.JobFailed, batchv1.JobFailureTarget); c != nil {
		return failed(c, pods)
	}
	if condition(job, batchv1.JobComplete) != nil {
		return failure(machineosbuild.Cause{Reason: reasonLost, Class: build.ClassTransient,
			Message: "the build ended well and its pod is gone before its digest was read",
			Next:    "nothing: the next attempt finds the image by its content address"})
	}
	if job.DeletionTimestamp != nil {
		return Observation{State: machineosbuild.Interrupted,
			Cause: machineosbuild.Cause{Reason: ReasonDeleted, Message: "the build's Job is being deleted"}}
	}
	var last *corev1.Pod
	for _, p := range pods {
		switch {
		case ended(p):
			if last == nil {
				last = p
			}
		case p.DeletionTimestamp != nil: // another will come
		default:
			return active(p)
		}
	}
	if last == nil {
		return Observation{State: machineosbuild.Prepared,
			Cause: machineosbuild.Cause{Reason: reasonWaiting, Message: "the build's Job has no pod yet"}}
	}
	cause := podCause(last)
	cause.Message = "the last attempt failed and the Job tries again: " + cause.Message
	cause.Reason = reasonRetrying
	return Observation{State: machineosbuild.Building, Cause: cause}
}

// condition gives the first of the Job's conditions of these kinds that is True.
func condition(job *batchv1.Job, kinds ...batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Status == corev1.ConditionTrue && slices.Contains(kinds, c.Type) {
			return c
		}
	}
	return nil
}

// failed joins what the Job says with what the last pod said. A Job over its deadline has deleted its pod.
func failed(c *batchv1.JobCondition, pods []*corev1.Pod) Observation {
	if c.Reason == batchv1.JobReasonDeadlineExceeded {
		cause := machineosbuild.Cause{Reason: c.Reason, Class: build.ClassPolicy,
			Message: "the build's Job went over its time limit (" + c.Message + ")",
			Next:    "look whether the pod could start at all (events of the Job), then raise the time limit"}
		for _, p := range pods { // what held it up is the better cause
			if o := active(p); o.Stuck {
				cause.Message += "; " + o.Cause.Message
			}
		}
		return failure(cause)
	}
	for _, p := range pods {
		if ended(p) || terminated(p) != nil {
			return failure(podCause(p))
		}
	}
	return failure(machineosbuild.Cause{Reason: c.Reason, Class: build.ClassInfrastructure,
		Message: "the build's Job failed and has no pod left: " + c.Message,
		Next:    "look at the events of the Job"})
}

func failure(cause machineosbuild.Cause) Observation {
	return Observation{State: machineosbuild.Failed, Cause: cause}
}

// terminated gives the end of the container that builds.
func terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == Container {
			return s.State.Terminated
		}
	}
	return nil
}

// active is about a pod that has not ended.
func active(p *corev1.Pod) Observation {
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		switch {
		case s.Name != Container:
		case s.State.Running != nil, s.State.Terminated != nil: // the pod's phase follows
			return Observation{State: machineosbuild.Building,
				Cause: machineosbuild.Cause{Reason: reasonRunning, Message: fmt.Sprintf("pod %s is building on node %s", p.Name,
					cmp.Or(p.Spec.NodeName, "?"))}}
		case s.State.Waiting != nil:
			if next, ok := stuck(s.State.Waiting.Reason); ok {
				return hold(s.State.Waiting.Reason, fmt.Sprintf("pod %s cannot start: %s: %s", p.Name, s.State.Waiting.Reason,
					strings.TrimSpace(s.State.Waiting.Message)), next)
			}
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return hold(c.Reason, fmt.Sprintf("pod %s finds no node: %s", p.Name, c.Message),
				"add a node of this architecture, or change node selector, tolerations or resources of builds")
		}
	}
	return Observation{State: machineosbuild.Prepared,
		Cause: machineosbuild.Cause{Reason: reasonWaiting, Message: fmt.Sprintf("pod %s is being started", p.Name)}}
}

// stuck knows the kubelet's reasons with which a container waits and does not start by itself, and what to do.
func stuck(reason string) (next string, ok bool) {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed":
		return "check that nodes can pull the builder image: its name, the registry's certificate, imagePullSecrets of the " +
			"service account", true
	case "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
		return "correct the name of the builder image", true
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return "check that the Secrets and ConfigMaps of the build exist and that the runtime allows what the pod asks for",
			true
	}
	return "", false
}

func hold(reason, message, next string) Observation {
	return Observation{State: machineosbuild.Prepared, Stuck: true,
		Cause: machineosbuild.Cause{Reason: reason, Class: build.ClassInfrastructure, Message: message, Next: next}}
}
