package job

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

// Reasons that the kubelet gives.
const (
	ReasonOOMKilled = "OOMKilled"
	ReasonEvicted   = "Evicted"
)

// Exit codes of a process that a signal ended: 128 and the signal's number.
const (
	exitKilled     = 137
	exitTerminated = 143
)

// podCause says why a pod that has ended did not build an image.
func podCause(p *corev1.Pod) machineosbuild.Cause {
	if p.Status.Reason == ReasonEvicted {
		return Evicted(p)
	}
	t := terminated(p)
	if t == nil {
		return machineosbuild.Cause{Reason: cmp.Or(p.Status.Reason, reasonKilled), Class: build.ClassTransient,
			Message: strings.TrimSpace("the pod ended before the builder did " + p.Status.Message),
			Next:    "look at the events of pod " + p.Name}
	}
	result, err := ParseResult(t.Message)
	var cause machineosbuild.Cause
	switch {
	case err == nil && result.Failure != nil:
		cause = machineosbuild.FromFailure(result.Failure)
	default:
		cause = unsaid(p, t)
	}
	cause.Log = result.Log
	if t.Reason == ReasonOOMKilled {
		cause.Reason, cause.Class = ReasonMemory, build.ClassPolicy
		cause.Message = "out of memory" + memoryLimit(p) + ": " + cause.Message
		cause.Next = "raise the memory limit of build pods (--build-memory), or let the step need less"
	}
	return cause
}

// unsaid is the cause of a builder that could not say it: the exit code is all there is.
func unsaid(p *corev1.Pod, t *corev1.ContainerStateTerminated) machineosbuild.Cause {
	cause := machineosbuild.Cause{
		Reason: reasonKilled, Class: build.ClassTransient, Next: "look at the log of pod " + p.Name,
		Message: fmt.Sprintf("the builder ended with exit code %d and without a word", t.ExitCode),
	}
	switch t.ExitCode {
	case ExitOK:
		cause.Reason, cause.Message = reasonLost, "the builder ended well and its digest cannot be read"
		cause.Next = "nothing: the next attempt finds the image by its content address"
	case ExitFinal:
		cause.Reason, cause.Class = reasonLost, build.ClassInfrastructure
		cause.Message = "the builder found a fault that stays, and what it said of it cannot be read"
	case exitKilled, exitTerminated:
		cause.Message = fmt.Sprintf("the builder was ended by signal %d", t.ExitCode-128)
	}
	// the runtime's word: a program that could not be started
	if text := strings.TrimSpace(t.Message); text != "" && t.ExitCode != ExitOK {
		cause.Message += ": " + text
	}
	return cause
}

// Evicted separates a pod that exceeded its own limit from one that its node could not hold.
func Evicted(p *corev1.Pod) machineosbuild.Cause {
	cause := machineosbuild.Cause{Reason: ReasonEvicted, Class: build.ClassTransient, Message: "the pod was evicted: " +
		p.Status.Message,
		Next: "nothing, if the node gets well; else look why it is short of resources"}
	if strings.Contains(p.Status.Message, "exceeds the") ||
		strings.Contains(p.Status.Message, "exceeds its local ephemeral storage") {
		cause.Class, cause.Next = build.ClassPolicy,
			"raise the limit of scratch space of build pods, or write less in the Containerfile"
	}
	return cause
}

func memoryLimit(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.Name == Container {
			if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
				return " (limit " + limit.String() + ")"
			}
		}
	}
	return ""
}
