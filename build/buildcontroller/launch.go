package buildcontroller

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// launch gives a fresh build its Job, or says why it cannot have one. It may be called again at any point.
func launch(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild) (state, error) {
	s.observation = s.with(b)
	if b.Annotations[manifests.AnnotationReusedImage] != "" {
		return reuseImage(ctx, x, s, b)
	}
	keys := s.keys
	if keys == nil {
		var err error
		keys, err = x.images.keys(ctx, s.config, s.desired.repository)
		if p := problemOf(err); p != nil {
			s.held = p.Message
			return s.again(p.After), nil
		}
		if err != nil {
			return s, err
		}
	}
	request := s.desired.request
	config, err := x.api.renderedConfig(ctx, s.desired.rendered)
	if err != nil {
		return s, err
	}
	request.Config = config
	signing, err := x.signing(ctx)
	if err != nil {
		return s, err
	}
	if signing.key != nil {
		request.Options.Keys, request.Options.BasePolicy = []sign.PublicKey{signing.key.Public}, signing.basePolicy
	}
	request.Options.Rebuild = b.Annotations[manifests.AnnotationBuildForced] != ""
	objects, cause := jobObjects(job.Input{Build: b, Config: s.config, Request: request, PullSecret: keys.pull,
		PushSecret: keys.push, CA: keys.ca, Mounts: job.EntitlementMounts(s.poolName()), Options: x.o.Job})
	if cause != nil {
		b, err = move(ctx, x, b, job.Observation{State: machineosbuild.Failed, Cause: *cause})
		s = s.again(soon) // the failure leads to another decision
	} else {
		b, err = createJob(ctx, x, b, objects)
	}
	if err != nil {
		return s, err
	}
	s.observation = s.with(b)
	return s, nil
}

// jobObjects makes the objects of a build, or says why no build accepts its inputs.
func jobObjects(in job.Input) (job.Objects, *machineosbuild.Cause) {
	if cause := refused(in.Request.Containerfile); cause != nil {
		return job.Objects{}, cause
	}
	objects, err := job.New(in)
	if err != nil {
		return objects, &machineosbuild.Cause{Reason: "InputRefused", Class: build.ClassUser, Message: err.Error()}
	}
	return objects, nil
}

// refused says what in a Containerfile no build accepts; nil means nothing.
func refused(text string) *machineosbuild.Cause {
	if text == "" {
		return nil
	}
	_, findings := containerfile.Lint(text, containerfile.LintOptions{})
	for _, f := range findings {
		if f.Severity == report.Error {
			return &machineosbuild.Cause{Reason: "ContainerfileInvalid", Class: build.ClassUser, Line: f.Line,
				Message: "Containerfile: " + f.Message, Next: f.Next}
		}
	}
	return nil
}

// createJob creates the inputs and the Job of a build, and gives the build that says so.
func createJob(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild, objects job.Objects) (*mcfgv1.MachineOSBuild,
	error) {
	for _, c := range objects.ConfigMaps {
		if err := x.api.writeInput(ctx, c, &corev1.ConfigMap{}); err != nil {
			return b, err
		}
	}
	for _, s := range objects.Secrets {
		if err := x.api.writeInput(ctx, s, &corev1.Secret{}); err != nil {
			return b, err
		}
	}
	// Until the build is recorded as prepared, a Job that somebody deletes is created again. So it stays suspended until
	// then: no build runs twice.
	objects.Job.Spec.Suspend = new(true)
	err := x.api.client.Create(ctx, objects.Job)
	if apierrors.IsAlreadyExists(err) {
		objects.Job, err = x.api.jobOf(ctx, x.api.live, b)
		if err == nil && (objects.Job == nil || !ownJob(objects.Job)) { // an earlier build of this name left it, or MCO
			if err = deleteJob(ctx, x, b); err == nil {
				err = overtaken("a Job of an earlier build of this name")
			}
		}
	}
	if err != nil {
		return b, wrap(err, "create Job of MachineOSBuild "+b.Name)
	}
	if fresh(b) { // a later attempt of a build beside MCO is prepared already
		prepared := b.DeepCopy()
		prepared.Status.Builder, prepared.Status.RelatedObjects = objects.Builder(), objects.Related()
		if b, err = move(ctx, x, prepared, job.Observation{State: machineosbuild.Prepared}); err != nil {
			return b, err
		}
	}
	return release(ctx, x, b, objects.Job)
}

// ownJob reports whether dayone made a Job.
func ownJob(j *batchv1.Job) bool { return j.Labels[cluster.LabelManagedBy] == cluster.ManagedBy }

// release lets the Job of a prepared build run, and records its UID on the build. It may be called again at any point
// until the UID is recorded; afterwards only an admin suspends it.
func release(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild, j *batchv1.Job) (*mcfgv1.MachineOSBuild, error) {
	if suspended(j) {
		running := j.DeepCopy()
		running.Spec.Suspend = new(false)
		if err := x.api.client.Patch(ctx, running, client.MergeFrom(j)); err != nil {
			return b, wrap(err, "release Job of MachineOSBuild "+b.Name)
		}
	}
	next := b.DeepCopy()
	annotate(next, manifests.AnnotationJobUID, string(j.UID))
	// without a lock: it is not written again
	return next, wrap(x.api.client.Patch(ctx, next, client.MergeFrom(b)), "annotate MachineOSBuild "+b.Name)
}

func suspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }
