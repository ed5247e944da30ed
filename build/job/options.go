package job

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	// deadlineSlack is what a Job may take beside the build: finding a node, pulling the builder image, waits between
	// attempts.
	deadlineSlack = 15 * time.Minute
	// minSlack keeps the Job from deleting a pod, and its message with it, before the builder has said why it stopped.
	minSlack = time.Minute
	// defaultBackoff is how many pods a Job starts after the first one failed for a reason that may pass.
	defaultBackoff = 2
	// grace is the time between SIGTERM and SIGKILL, in seconds: the builder needs none of it to clear up.
	grace = 10
)

// Options are how build pods run. The zero value but for BuilderImage is right for a cluster whose container runtime
// sets no seccomp profile of its own; docs/operators/builds.md says what others need.
type Options struct {
	// Namespace of all objects; default cluster.DefaultNamespace.
	Namespace string
	// BuilderImage holds machine-os-builder; it is required, best by digest.
	BuilderImage string
	// ServiceAccount of the pod; default cluster.BuildServiceAccount. Its token is never mounted: the pod talks to
	// registries only.
	ServiceAccount string
	// ImagePullSecrets for BuilderImage; default is what the service account has.
	ImagePullSecrets []string
	// BuilderDeadline is when the builder itself gives up and says so; default build.DefaultTimeout.
	BuilderDeadline time.Duration
	// Deadline is when the Job ends with all its attempts, without a word from the pod; default is 15 minutes after
	// BuilderDeadline, and it must be a minute after it at least.
	Deadline time.Duration
	// BackoffLimit is how often the Job starts another pod after a failure that may pass; default 2, negative never.
	BackoffLimit int32
	// Resources of the container; default requests 100m of a processor and 256Mi, with MemoryLimit. A base of 200 MB was
	// seen to build within 128Mi: page cache is given back.
	Resources corev1.ResourceRequirements
	// MemoryLimit of the container without Resources: a RUN that wants more is ended, and says so. Default is
	// DefaultMemoryLimit; zero sets none.
	MemoryLimit *resource.Quantity
	// WorkLimit bounds the pod's scratch space; the kubelet evicts a pod that goes over it, within a minute. Default none;
	// the builder itself bounds new layers (build.Options.DiskLimit).
	WorkLimit *resource.Quantity
	// NodeSelector is added to the selection of operating system and architecture.
	NodeSelector map[string]string
	// PriorityClass of the pod; default cluster.BuildPriorityClass.
	PriorityClass string

	// Privileged runs the pod privileged. It is a policy of its own that an admin must ask for: the root of such a pod is
	// the node's.
	Privileged bool
	// PodUserNamespace asks the runtime for a user namespace (hostUsers: false) and takes CAP_SYS_ADMIN within it. It
	// works under seccomp RuntimeDefault and needs a runtime with user namespaces: containerd 2, CRI-O 1.25.
	PodUserNamespace bool
	// SeccompLocalhost is the file of a seccomp profile below the kubelet's directory that lets clone, unshare and mount
	// through. Default is the runtime's unconfined default; a kubelet with seccompDefault needs it.
	SeccompLocalhost string
	// AppArmorLocalhost is the name of a loaded AppArmor profile that allows mounts; default is the runtime's.
	AppArmorLocalhost string
	// SELinuxType of the container, for nodes that enforce: container_engine_t allows nested mounts. Default is the
	// runtime's.
	SELinuxType string
}

const (
	// DefaultMemoryLimit leaves room for what installs packages and makes an initramfs (dnf and dracut take 1 to 2 GiB)
	// several times over, and keeps a RUN that runs away from taking a node's memory.
	DefaultMemoryLimit = "8Gi"
	// memoryRequest is what the scheduler sets aside.
	memoryRequest = "256Mi"
)

// resources are those of a container for which nobody says them.
func (o Options) resources() corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse(memoryRequest),
	}}
	limit := resource.MustParse(DefaultMemoryLimit)
	if o.MemoryLimit != nil {
		limit = *o.MemoryLimit
	}
	if !limit.IsZero() {
		out.Limits = corev1.ResourceList{corev1.ResourceMemory: limit}
	}
	return out
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, cluster.DefaultNamespace)
	o.ServiceAccount = cmp.Or(o.ServiceAccount, cluster.BuildServiceAccount)
	o.PriorityClass = cmp.Or(o.PriorityClass, cluster.BuildPriorityClass)
	o.BuilderDeadline = cmp.Or(o.BuilderDeadline, build.DefaultTimeout)
	o.Deadline = cmp.Or(o.Deadline, o.BuilderDeadline+deadlineSlack)
	o.BackoffLimit = max(cmp.Or(o.BackoffLimit, defaultBackoff), 0)
	if o.Resources.Requests == nil && o.Resources.Limits == nil {
		o.Resources = o.resources()
	}
	return o
}

// Validate names the first option that is invalid.
func (o Options) Validate() error {
	d := o.withDefaults()
	switch {
	case o.BuilderImage == "":
		return errors.New("builderImage: it is empty; name the image with machine-os-builder by digest")
	case d.BuilderDeadline < 0:
		return fmt.Errorf("builderDeadline: %s is no time", d.BuilderDeadline)
	case d.Deadline < d.BuilderDeadline+minSlack:
		return fmt.Errorf("deadline: %s is too near to builderDeadline %s; leave the pod %s to say why it stopped",
			d.Deadline, d.BuilderDeadline, minSlack)
	case o.MemoryLimit != nil && !o.MemoryLimit.IsZero() && o.MemoryLimit.Cmp(resource.MustParse(memoryRequest)) < 0:
		return fmt.Errorf("memoryLimit: %s is less than the %s that a build pod requests; give more, or 0 for no limit",
			o.MemoryLimit, memoryRequest)
	case o.Privileged && o.PodUserNamespace:
		return errors.New("privileged: it excludes podUserNamespace; choose one")
	}
	return nil
}
