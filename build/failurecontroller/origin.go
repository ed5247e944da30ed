package failurecontroller

import (
	"cmp"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
)

// origin is who builds: what its Jobs and pods look like, and how it says why a build failed.
type origin struct {
	// container is the one that builds.
	container string
	// job is the name of a build's Job.
	job func(build string) string
	// has tells one of its builds, and isPod a pod of one.
	has   func(b *mcfgv1.MachineOSBuild) bool
	isPod func(p *corev1.Pod) bool
	// config is the MachineOSConfig of a Job or a pod; empty: it is not known.
	config func(o client.Object) string
	// explain says why the build failed; last is its last pod that did, nil when nobody saw one. nil: it has not failed.
	explain func(w *world, b *mcfgv1.MachineOSBuild, last *sight) *mcobuild.Cause
	// asks: it does not try again by itself.
	asks bool
}

// jobPrefix begins the names of the Machine Config Operator's Jobs; the build's name follows.
const jobPrefix = "build-"

// ofMCO is the Machine Config Operator's builder.
func ofMCO() origin {
	return origin{
		container: mcobuild.BuildContainer,
		job:       func(build string) string { return jobPrefix + build },
		has: func(b *mcfgv1.MachineOSBuild) bool {
			_, preBuilt := b.Labels[manifests.AnnotationPreBuiltImage]
			return !preBuilt // a pre-built image has no build
		},
		isPod: func(p *corev1.Pod) bool {
			for i := range p.Spec.InitContainers {
				if p.Spec.InitContainers[i].Name == mcobuild.BuildContainer {
					return true
				}
			}
			return false
		},
		// Its builds are called <MachineOSConfig>-<sum> (MCO, pkg/controller/build/buildrequest), and its pods have no label
		// of their own.
		config: func(o client.Object) string {
			name := strings.TrimPrefix(cmp.Or(jobOf(o), o.GetName()), jobPrefix)
			return name[:max(0, strings.LastIndexByte(name, '-'))]
		},
		explain: explain,
		asks:    true,
	}
}

// ofDayone is dayone's own builder, in mode builder.
func ofDayone() origin {
	return origin{
		container: job.Container,
		job:       job.JobName,
		has:       func(b *mcfgv1.MachineOSBuild) bool { return b.Annotations[manifests.AnnotationClaimed] != "" },
		isPod: func(p *corev1.Pod) bool {
			return len(p.Spec.Containers) > 0 && p.Spec.Containers[0].Name == job.Container
		},
		config:  func(o client.Object) string { return o.GetAnnotations()[manifests.LabelMachineOSConfig] },
		explain: ownCause,
	}
}

// ownCause is what dayone's builder has found out itself: it is in the MachineOSBuild, and while another attempt is to
// come in the last word of the pod.
func ownCause(_ *world, b *mcfgv1.MachineOSBuild, last *sight) *mcobuild.Cause {
	if machineosbuild.StateOf(b) == machineosbuild.Failed {
		return &mcobuild.Cause{Failure: *machineosbuild.CauseOf(b).Failure()}
	}
	if last == nil {
		return nil
	}
	s := mcobuild.ContainerOf(last.pod, job.Container)
	if s == nil || s.State.Terminated == nil {
		return nil
	}
	said, err := job.ParseResult(s.State.Terminated.Message)
	if err != nil || said.Failure == nil {
		return nil
	}
	return &mcobuild.Cause{Failure: *said.Failure}
}

// jobOf is the name of the Job of a pod; empty for what is none.
func jobOf(o client.Object) string { return o.GetLabels()[batchv1.JobNameLabel] }
