package buildcontroller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// followJobs writes the progress of Jobs and their pods into the builds that run.
func followJobs(ctx context.Context, x scope, s state) (state, error) {
	s.builds = slices.Clone(s.builds)
	for i, b := range s.builds {
		if terminal(b) || b.DeletionTimestamp != nil || fresh(b) { // a fresh build gets its Job first
			continue
		}
		next, o, err := follow(ctx, x, s.observation, b)
		if err != nil {
			return s, err
		}
		s.builds[i] = next
		if o.Stuck {
			s.held = o.Cause.Message
		}
		if o.Cause.Reason == reasonNotReady {
			s = s.again(min(replicaPoll, x.o.Poll))
		}
	}
	return s, nil
}

// follow brings one build up to what its Job and its pods say.
func follow(ctx context.Context, x scope, all observation, b *mcfgv1.MachineOSBuild) (*mcfgv1.MachineOSBuild,
	job.Observation, error) {
	j, err := x.api.currentJob(ctx, b)
	if err != nil {
		return b, job.Observation{}, err
	}
	if j != nil && j.DeletionTimestamp == nil && b.Annotations[manifests.AnnotationJobUID] == "" {
		if b, err = release(ctx, x, b, j); err != nil {
			return b, job.Observation{}, err
		}
	}
	o, err := x.api.progress(ctx, j)
	if err != nil || !machineosbuild.Allowed(machineosbuild.StateOf(b), o.State) {
		return b, o, err
	}
	if o.State == machineosbuild.Succeeded {
		if held, err := x.signed(ctx, all, b, o.Digest); err != nil || held != "" {
			return b, heldUp(held, j, x.now), err
		}
		if b, err = withKernels(ctx, x, b, o.Kernels); err != nil {
			return b, o, err
		}
		next, held, err := replicated(ctx, x, b, o.Digest)
		if b = next; err != nil || held != "" {
			return b, heldUp(held, j, x.now), err
		}
	}
	b, err = move(ctx, x, b, o)
	return b, o, err
}

// withKernels notes the kernels of a build's image, by which a forecast tells whether nodes can reboot softly.
func withKernels(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild, names []string) (*mcfgv1.MachineOSBuild,
	error) {
	if len(names) == 0 {
		return b, nil
	}
	return patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		annotate(b, manifests.AnnotationKernels, strings.Join(names, ","))
	})
}

// reasonNotReady is that of a build whose image is pushed and does not count yet.
const reasonNotReady = "NotReady"

// heldUp is a build whose Job has ended and that has not succeeded yet. It is stuck when that lasts.
func heldUp(why string, j *batchv1.Job, now time.Time) job.Observation {
	o := job.Observation{State: machineosbuild.Building, Cause: machineosbuild.Cause{Reason: reasonNotReady, Message: why}}
	o.Stuck = j == nil || j.Status.CompletionTime == nil || now.Sub(j.Status.CompletionTime.Time) > replicaPatience
	return o
}

// move writes a build's next state and gives the written build. The inputs of a build that ends are deleted before:
// Secrets in any case, for copies of credentials live no longer than needed; a failed build keeps the rest for people.
func move(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild, o job.Observation) (*mcfgv1.MachineOSBuild, error) {
	next, from := b.DeepCopy(), machineosbuild.StateOf(b)
	if err := machineosbuild.Move(next, o.State, o.Cause, x.now); err != nil {
		return b, err
	}
	if o.State == machineosbuild.Succeeded {
		reference := installconfig.Repository(string(b.Spec.RenderedImagePushSpec)) + "@" + o.Digest
		next.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(reference)
		if err := pin(ctx, x, next); err != nil { // no reason to lose the image
			x.log.WithError(err).WithField("machineosbuild", b.Name).Warn("image keeps the tag of its content address only")
		}
	}
	if o.State.Terminal() {
		kinds := []string{"Secret", "ConfigMap"}
		if o.State == machineosbuild.Failed {
			kinds = kinds[:1]
		}
		if err := x.api.deleteInputs(ctx, next, kinds...); err != nil {
			return b, err
		}
		next.Status.RelatedObjects = slices.DeleteFunc(next.Status.RelatedObjects, func(r mcfgv1.ObjectReference) bool {
			return o.State != machineosbuild.Failed || r.Resource == "secrets"
		})
	}
	if err := x.api.client.Status().Update(ctx, next); err != nil {
		return b, wrap(err, "write state of MachineOSBuild "+b.Name)
	}
	x.log.WithField("machineosbuild", b.Name).WithField("from", from).WithField("state", o.State).
		WithField("reason", o.Cause.Reason).Info("build has another state")
	x.recorder.moved(next, from, o)
	return next, nil
}

// pin gives a build's image the build's own tag: the tag of its content address moves on with the next build of the
// same content, and a registry may collect what has no tag. Without access to the registry it does nothing.
func pin(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild) error {
	access, err := x.images.access(ctx, b)
	if err != nil {
		if errors.Is(err, errNoAccess) {
			return nil
		}
		return err
	}
	there, err := x.images.registries.Tag(ctx, string(b.Status.DigestedImagePushSpec), tagOf(b), access)
	if err == nil && !there {
		x.log.WithField("machineosbuild", b.Name).Warn("the registry does not have the image of a build")
	}
	return err
}

// tagOf is the tag of one build alone. MCO deletes the image behind the tag that it chose, even if another build uses
// that image. So a build beside MCO has a tag that MCO does not know.
func tagOf(b *mcfgv1.MachineOSBuild) string {
	if claimed(b) {
		unique := "-" + string(b.UID[:min(8, len(b.UID))])
		return manifests.Shorten(b.Name, maxTag-len(unique)) + unique
	}
	spec := string(b.Spec.RenderedImagePushSpec)
	return spec[len(installconfig.Repository(spec))+1:]
}

// interrupt ends a running build in favour of the build that is named; the name may be empty. A build that has ended
// stays as it is.
func interrupt(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild, by string) (*mcfgv1.MachineOSBuild, error) {
	if b == nil || terminal(b) {
		return b, nil
	}
	if err := deleteJob(ctx, x, b); err != nil {
		return b, err
	}
	message := "a newer request took its place"
	if by != "" {
		message += ": MachineOSBuild " + by
	}
	return move(ctx, x, b, job.Observation{State: machineosbuild.Interrupted,
		Cause: machineosbuild.Cause{Reason: "Superseded", Message: message}})
}

// deleteJob deletes the Job of a build, and says so.
func deleteJob(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild) error {
	name, err := x.api.deleteJob(ctx, b)
	if name != "" {
		x.recorder.event(b, corev1.EventTypeNormal, eventJobDeleted, "Job %s is deleted", name)
	}
	return err
}
