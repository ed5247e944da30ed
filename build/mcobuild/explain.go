package mcobuild

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/symptom"
)

// Containers of a build's pod (MCO, pkg/controller/build/buildrequest).
const (
	BuildContainer  = "image-build"
	digestContainer = "create-digest-configmap"
)

// Evidence is what is known of a build that failed.
type Evidence struct {
	Build *mcfgv1.MachineOSBuild
	// Containerfile is the user's text; empty: none.
	Containerfile string
	// Job and Pod, the last one that ended, are nil when nobody saw them.
	Job *batchv1.Job
	Pod *corev1.Pod
	// Logs are those of the pod's containers by name, as far as they were read.
	Logs map[string]string
}

// Cause is why a build failed, and whether another attempt at the same inputs may help.
type Cause struct {
	build.Failure
	Retry bool `json:"retry,omitempty"`
}

// Explain says why the build failed. The cause holds no secret that has the form of one.
func Explain(e Evidence) Cause {
	c := explain(e)
	c.Message = clean(shorten(c.Message))
	c.Instruction = clean(shorten(c.Instruction))
	if len(c.Excerpt) > 0 { // as a whole: a key has several lines
		c.Excerpt = strings.Split(clean(strings.Join(c.Excerpt, "\n")), "\n")
	}
	for i, line := range c.Excerpt {
		c.Excerpt[i] = shorten(line)
	}
	c.Retry = c.Retry || c.Class == build.ClassTransient
	return c
}

func explain(e Evidence) Cause {
	switch {
	case e.Pod != nil:
		return e.ofPod()
	case e.Job == nil && e.Build.Status.Builder == nil && e.Build.Status.BuildStart == nil:
		return e.refused()
	}
	c := cause(build.ClassInfrastructure, stepContainerfile, "the build failed, and its pods were deleted before dayone "+
		"could read their log", "ask for a rebuild: dayone keeps the log of the next attempt")
	if e.Job != nil {
		for _, condition := range e.Job.Status.Conditions {
			if condition.Type == batchv1.JobFailed && condition.Status == corev1.ConditionTrue {
				c.Message += "; its Job says " + condition.Reason + ": " + condition.Message
			}
		}
	}
	return c
}

func cause(class build.Class, step, message, next string) Cause {
	return Cause{Failure: build.Failure{Class: class, Step: step, Message: message, Next: next}}
}

// refused is a build for which MCO made no Job: it could not read the Containerfile.
func (e Evidence) refused() Cause {
	c := cause(build.ClassUser, stepRequest,
		"the Machine Config Operator refused the Containerfile and made no Job for it",
		"correct the Containerfile in the MachineOSConfig")
	_, findings := containerfile.Lint(e.Containerfile, containerfile.LintOptions{})
	if len(findings) > 0 {
		c.Message += ": " + findings[0].Message
		c.Line, c.Next = findings[0].Line, cmp.Or(findings[0].Next, c.Next)
	}
	return c
}

// ofPod is about a pod that did not make an image.
func (e Evidence) ofPod() Cause {
	if e.Pod.Status.Reason == job.ReasonEvicted {
		found := job.Evicted(e.Pod)
		return cause(found.Class, stepContainerfile, found.Message, found.Next)
	}
	for _, name := range []string{BuildContainer, digestContainer} {
		state := ContainerOf(e.Pod, name)
		if state == nil || state.State.Terminated == nil || state.State.Terminated.ExitCode == 0 {
			continue
		}
		if name == digestContainer {
			return e.ofDigest(state.State.Terminated)
		}
		return e.ofBuild(state.State.Terminated)
	}
	reason := strings.TrimSpace(e.Pod.Status.Reason + " " + e.Pod.Status.Message)
	return cause(build.ClassTransient, stepContainerfile, "pod "+e.Pod.Name+" ended before its containers did: "+
		cmp.Or(reason, "the pod does not say why"), "look at the events of the pod and of its node "+e.Pod.Spec.NodeName)
}

// ofBuild is about the container that builds and pushes.
func (e Evidence) ofBuild(t *corev1.ContainerStateTerminated) Cause {
	o := read(cmp.Or(e.Logs[BuildContainer], t.Message))
	c := cause(build.ClassUser, o.step, o.text(), "")
	c.Excerpt = o.excerpt
	c.ExitCode = cmp.Or(symptom.ExitCode(o.failure), int(t.ExitCode))
	if o.step == stepContainerfile {
		c.Instruction = o.instruction
		if line, found := o.place(e.Containerfile); found {
			c.Line = line
		}
	}
	switch {
	case t.Reason == job.ReasonOOMKilled:
		c.blame(build.ClassPolicy, "out of memory: raise the memory limit that a LimitRange gives to build pods, or let "+
			"this step need less")
		c.Message = "out of memory: " + c.Message
	case t.Signal == 9 || t.ExitCode == 137 || t.ExitCode == 143:
		c.blame(build.ClassTransient,
			"nothing, if node "+e.Pod.Spec.NodeName+" gets well; else look at the events of the pod")
		c.Message = fmt.Sprintf("the pod was stopped (exit code %d): %s", t.ExitCode, c.Message)
	default:
		e.classify(&c, o)
	}
	if c.Class != build.ClassUser { // the instruction is where it happened and not why
		c.Line = 0
	}
	return c
}

func (c *Cause) blame(class build.Class, next string) { c.Class, c.Next = class, next }

// classify goes from what cannot be the Containerfile's fault to what most often is.
func (e Evidence) classify(c *Cause, o output) {
	text, excerpt := o.text(), strings.Join(o.excerpt, "\n")
	node := cmp.Or(e.Pod.Spec.NodeName, "of the pod")
	switch {
	case o.step == stepPush && symptom.RegistryFull(text):
		c.blame(build.ClassInfrastructure, "free disk space where the registry keeps its images")
		c.Retry = true
	case symptom.DiskFull(text), o.inRun() && symptom.DiskFull(excerpt):
		c.blame(build.ClassInfrastructure, "free disk space on node "+node+": MCO's builds copy each layer as a whole")
		c.Retry = true
	case symptom.HelperKilled(text), o.inRun() && symptom.KilledRun(excerpt):
		c.blame(build.ClassInfrastructure, "something killed a process of this build: look for \"out of memory\" in the "+
			"kernel messages of node "+node)
		c.Retry = true
	case o.inRun() && symptom.Unreachable(excerpt):
		c.blame(build.ClassTransient, "the command could not reach a server: check network, proxy and mirrors of the cluster")
	case o.inRun() && c.Line == 0 && e.generated(o):
		c.blame(build.ClassUser, "MCO made this instruction of the pool's MachineConfigs: check their extensions, their "+
			"kernelType and their Ignition configs")
	case o.inRun():
		c.blame(build.ClassUser, "correct this instruction: the log has what it printed last")
	case symptom.BadTrust(text):
		c.blame(build.ClassInfrastructure, "add the CA certificate of that registry to the cluster's trust bundle")
	case symptom.Unauthorized(text):
		c.blame(build.ClassInfrastructure, "check the Secrets that the MachineOSConfig names: the base needs pull, the "+
			"renderedImagePushSpec needs push")
	case symptom.Unreachable(text):
		c.blame(build.ClassTransient, "check that the registry runs and can be reached from node "+node)
	case o.step == stepPush:
		c.blame(build.ClassInfrastructure, "check the log of the registry, and that its repository exists")
	case symptom.NotThere(text):
		c.blame(build.ClassUser, "check the names of images in FROM and --from, and that they exist for this architecture")
	case strings.HasPrefix(strings.ToUpper(o.instruction), "FROM"), symptom.Unpack(text):
		c.blame(build.ClassInfrastructure, "check that the base image can be pulled and the disk of node "+node+" is sound")
	case o.instruction == "":
		c.blame(build.ClassInfrastructure, "read the log: the build ended before its first instruction")
	default:
		c.blame(build.ClassUser, "correct this instruction")
	}
}

// generated says whether the instruction lies in one of MCO's own stages.
func (e Evidence) generated(o output) bool {
	file, err := containerfile.Parse(e.Containerfile)
	return o.stages > 0 && (err != nil || o.stage <= o.stages-len(file.Stages))
}

// ofDigest is about the container that tells the digest of an image that is pushed already.
func (e Evidence) ofDigest(t *corev1.ContainerStateTerminated) Cause {
	o := read(cmp.Or(e.Logs[digestContainer], t.Message))
	c := cause(build.ClassInfrastructure, stepDigest,
		"the image is pushed, but the Machine Config Operator could not write the ConfigMap with its digest: "+o.text(),
		"check the rights of ServiceAccount machine-os-builder and that the API "+
			"server can be reached from node "+e.Pod.Spec.NodeName)
	c.Excerpt, c.ExitCode = o.excerpt, int(t.ExitCode)
	if symptom.Unreachable(strings.Join(o.excerpt, "\n")) {
		c.Class = build.ClassTransient
	}
	return c
}

// ContainerOf gives what the kubelet says of a pod's container; nil: nothing.
func ContainerOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		if i := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}
