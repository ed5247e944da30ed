package buildcontroller

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

const (
	// lookForSecret is how often a missing Secret is looked for: they are read when they are needed and not watched.
	lookForSecret = 15 * time.Second
	// lookForPlace is how often a queued build looks for a place beside the event that tells of one.
	lookForPlace = 30 * time.Second
)

// prepare makes sure that a build can begin: its Secrets are there, a place is free, and the image in use will keep a
// tag.
func (x *run) prepare(ctx context.Context) error {
	keys, blocked, err := x.secrets(ctx)
	if err != nil {
		return err
	}
	if blocked == nil {
		blocked = x.pinInUse(ctx)
	}
	if blocked != nil {
		x.in.Blocked = blocked
		x.d = decide.Decide(x.in)
		x.again(lookForSecret)
		return nil
	}
	x.keys = keys
	active, _, err := x.activeBuilds(ctx)
	if err != nil {
		return err
	}
	replaces := 0
	for _, name := range x.d.Interrupt {
		if active[name] {
			replaces++
		}
	}
	c := claim{owner: x.name, content: content(x.wanted.address, x.wanted.repository)}
	if x.slots.take(x.d.BuildName, c, active, replaces) {
		return nil
	}
	if err := x.look(ctx); err != nil {
		return err
	}
	x.in.Free = min(x.in.Free, 0) // somebody was quicker
	x.d = decide.Decide(x.in)
	if x.d.Action.Starts() {
		return x.moved("the queue")
	}
	return nil
}

// begin announces a build, makes it and gives it its Job.
func (x *run) begin(ctx context.Context) error {
	if err := x.announce(ctx, x.d.BuildName); err != nil {
		return err
	}
	b := x.newBuild()
	err := x.client.Create(ctx, b)
	if apierrors.IsAlreadyExists(err) {
		b = &mcfgv1.MachineOSBuild{}
		if err := x.live.Get(ctx, client.ObjectKey{Name: x.d.BuildName}, b); err != nil {
			return fmt.Errorf("read MachineOSBuild: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("make MachineOSBuild %s: %w", b.Name, err)
	} else {
		x.log.WithField("machineosbuild", b.Name).WithField("action", x.d.Action).WithField("reason", x.d.Reason).
			WithField("attempt", x.d.Attempt).Info("build begins")
		x.began()
	}
	x.own = append(x.own, b)
	return x.ensure(ctx, b)
}

// newBuild is the MachineOSBuild of the decision. The tag is its own, so that no later build takes it away from the
// image.
func (x *run) newBuild() *mcfgv1.MachineOSBuild {
	annotations := machineosbuild.Annotations(x.wanted.address, x.config.Spec.RenderedImagePushSecret.Name)
	annotations[manifests.AnnotationBuildGround] = x.wanted.ground
	annotations[manifests.AnnotationBuildAttempt] = strconv.Itoa(x.d.Attempt)
	annotations[manifests.AnnotationBuildRetries] = strconv.Itoa(x.d.Retries)
	if x.d.Forced {
		annotations[manifests.AnnotationBuildForced] = "true"
	}
	tag := machineosbuild.Shorten(x.d.BuildName, maxTag-len(timeTag(x.now))-1) + "-" + timeTag(x.now)
	return &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{
			Name: x.d.BuildName, Labels: machineosbuild.Labels(x.config.Spec.MachineConfigPool.Name, x.name, x.wanted.config),
			Annotations: annotations, Finalizers: []string{manifests.FinalizerMachineOSBuild},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(x.config,
				mcfgv1.GroupVersion.WithKind("MachineOSConfig"))},
		},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: x.wanted.config},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: x.name},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(x.wanted.repository + ":" + tag),
		},
	}
}

// maxTag is the length of a tag (OCI distribution specification).
const maxTag = 128

// timeTag tells apart the images of builds that have one name one after the other.
func timeTag(now time.Time) string { return strconv.FormatInt(now.UnixMilli(), 36) }

// ensure gives a build its Job, or says why it cannot have one. It may be called again at any point.
func (x *run) ensure(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	if b == nil || !fresh(b) {
		return nil
	}
	if b.Annotations[manifests.AnnotationReusedImage] != "" {
		return x.take(ctx, b)
	}
	if x.keys == nil {
		keys, blocked, err := x.secrets(ctx)
		if err != nil {
			return err
		}
		if blocked != nil {
			x.held = blocked.Message
			x.again(lookForSecret)
			return nil
		}
		x.keys = keys
	}
	request := x.wanted.request
	config, err := x.rendered(ctx, x.wanted.config)
	if err != nil {
		return err
	}
	request.Config = config
	request.Options.Rebuild = b.Annotations[manifests.AnnotationBuildForced] != ""
	if cause := refused(request.Containerfile); cause != nil {
		return x.fail(ctx, b, *cause)
	}
	objects, err := job.New(job.Input{Build: b, Config: x.config, Request: request, PullSecret: x.keys.pull,
		PushSecret: x.keys.push, CA: x.keys.ca,
		Mounts: job.EntitlementMounts(x.config.Spec.MachineConfigPool.Name), Options: x.o.Job})
	if err != nil {
		return x.fail(ctx, b, machineosbuild.Cause{Reason: "InputRefused", Class: build.ClassUser, Message: err.Error()})
	}
	return x.launch(ctx, b, objects)
}

func (x *run) launch(ctx context.Context, b *mcfgv1.MachineOSBuild, objects job.Objects) error {
	for _, c := range objects.ConfigMaps {
		if err := x.apply(ctx, c, &corev1.ConfigMap{}); err != nil {
			return err
		}
	}
	for _, s := range objects.Secrets {
		if err := x.apply(ctx, s, &corev1.Secret{}); err != nil {
			return err
		}
	}
	if err := x.client.Create(ctx, objects.Job); apierrors.IsAlreadyExists(err) {
		j, err := x.jobOf(ctx, x.live, b)
		if err != nil {
			return err
		}
		if j == nil { // an earlier build of this name left it
			return x.deleteStray(ctx, b)
		}
		objects.Job = j
	} else if err != nil {
		return fmt.Errorf("make Job of MachineOSBuild %s: %w", b.Name, err)
	}
	prepared := b.DeepCopy()
	prepared.Status.Builder, prepared.Status.RelatedObjects = objects.Builder(), named(objects.Related())
	next, err := x.move(ctx, prepared, job.Observation{State: machineosbuild.Prepared})
	if err != nil {
		return err
	}
	*b = *next
	return x.note(ctx, b, map[string]string{manifests.AnnotationJobUID: string(objects.Job.UID)})
}

// coreGroup stands for Kubernetes' group without a name, for the API refuses an empty one in relatedObjects
// (openshift/api machineconfiguration/v1, ObjectReference.group: a DNS subdomain).
const coreGroup = "core"

func named(list []mcfgv1.ObjectReference) []mcfgv1.ObjectReference {
	for i := range list {
		if list[i].Group == "" {
			list[i].Group = coreGroup
		}
	}
	return list
}

func (x *run) deleteStray(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	if err := x.deleteJob(ctx, b); err != nil {
		return err
	}
	return x.moved("a Job of an earlier build of this name")
}

// apply makes an input of a build. One that an earlier build of this name left is written over.
func (x *run) apply(ctx context.Context, object, old client.Object) error {
	err := x.client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("make %s: %w", object.GetName(), err)
		}
		return nil
	}
	if err := x.live.Get(ctx, client.ObjectKeyFromObject(object), old); err != nil {
		return fmt.Errorf("read %s: %w", object.GetName(), err)
	}
	object.SetResourceVersion(old.GetResourceVersion())
	if err := x.client.Update(ctx, object); err != nil {
		return fmt.Errorf("write %s: %w", object.GetName(), err)
	}
	return nil
}

// refused says what in a Containerfile no build can get past; nil means nothing.
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

func (x *run) fail(ctx context.Context, b *mcfgv1.MachineOSBuild, cause machineosbuild.Cause) error {
	next, err := x.move(ctx, b, job.Observation{State: machineosbuild.Failed, Cause: cause})
	if err != nil {
		return err
	}
	*b = *next
	x.again(soon) // what follows from the failure is another decision
	return nil
}

// note adds annotations to a build.
func (x *run) note(ctx context.Context, b *mcfgv1.MachineOSBuild, annotations map[string]string) error {
	old := b.DeepCopy()
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	maps.Copy(b.Annotations, annotations)
	if maps.Equal(b.Annotations, old.Annotations) {
		return nil
	}
	if err := x.client.Patch(ctx, b, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("annotate MachineOSBuild %s: %w", b.Name, err)
	}
	return nil
}
