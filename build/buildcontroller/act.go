package buildcontroller

import (
	"context"
	"strconv"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// act carries out the decision.
func act(ctx context.Context, x scope, s state) (state, error) {
	for _, name := range s.decision.Interrupt {
		b, err := interrupt(ctx, x, s.build(name), s.decision.BuildName)
		if err != nil {
			return s, err
		}
		if b != nil {
			s.observation = s.with(b)
		}
	}
	s = s.again(s.decision.After)
	switch {
	case s.decision.Action.Starts():
		return begin(ctx, x, s)
	case s.decision.Action == decide.Reuse:
		return reuse(ctx, x, s)
	case s.decision.Action == decide.None:
		return relabel(ctx, x, s)
	case s.decision.Action == decide.Wait && s.decision.Reason == decide.ReasonBuilding:
		if b := s.build(s.decision.BuildName); b != nil && fresh(b) {
			return launch(ctx, x, s, b)
		}
	}
	return s, nil
}

// begin announces a build, creates it and launches its Job.
func begin(ctx context.Context, x scope, s state) (state, error) {
	s, err := announce(ctx, x, s)
	if err != nil {
		return s, err
	}
	b, created, err := x.api.createBuild(ctx, newBuild(s, x.now))
	if err != nil {
		return s, err
	}
	if created {
		x.log.WithField("machineosbuild", b.Name).WithField("action", s.decision.Action).
			WithField("reason", s.decision.Reason).WithField("attempt", s.decision.Attempt).Info("build begins")
		x.recorder.began(s.config, s.decision)
	}
	if !fresh(b) {
		s.observation = s.with(b)
		return s, nil
	}
	return launch(ctx, x, s, b)
}

// announce writes down which build is current before it is created, and on the rebuild request that this build serves
// it: after a kill the next process begins the same build and no other.
func announce(ctx context.Context, x scope, s state) (state, error) {
	config, err := patched(ctx, x.api, s.config, func(c *mcfgv1.MachineOSConfig) {
		annotate(c, manifests.AnnotationCurrentBuild, s.decision.BuildName)
		markServing(c, s.decision)
	})
	if err != nil {
		return s, err
	}
	s.config = config
	s.pool, err = patched(ctx, x.api, s.pool, func(p *mcfgv1.MachineConfigPool) { markServing(p, s.decision) })
	return s, err
}

// markServing notes on a rebuild request which build serves it.
func markServing(o client.Object, d decide.Decision) {
	if d.Action == decide.Rebuild && manifests.RequestsRebuild(o) {
		annotate(o, manifests.AnnotationRebuilding, d.BuildName)
	}
}

// newBuild is the MachineOSBuild of the decision. Its tag is its own: no later build takes it away from the image.
func newBuild(s state, now time.Time) *mcfgv1.MachineOSBuild {
	annotations := machineosbuild.Annotations(s.desired.address, s.config.Spec.RenderedImagePushSecret.Name)
	annotations[manifests.AnnotationBuildGround] = s.desired.ground
	annotations[manifests.AnnotationBuildAttempt] = strconv.Itoa(s.decision.Attempt)
	annotations[manifests.AnnotationBuildRetries] = strconv.Itoa(s.decision.Retries)
	if s.decision.Forced {
		annotations[manifests.AnnotationBuildForced] = "true"
	}
	unique := "-" + strconv.FormatInt(now.UnixMilli(), 36) // builds may have one name one after the other
	tag := manifests.Shorten(s.decision.BuildName, maxTag-len(unique)) + unique
	return &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.decision.BuildName, Annotations: annotations, Finalizers: []string{manifests.FinalizerMachineOSBuild},
			Labels: machineosbuild.Labels(s.poolName(), s.config.Name, s.desired.rendered),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.config,
				mcfgv1.GroupVersion.WithKind("MachineOSConfig"))},
		},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: s.desired.rendered},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: s.config.Name},
			RenderedImagePushSpec: mcfgv1.ImageTagFormat(s.desired.repository + ":" + tag),
		},
	}
}

// maxTag is the length of a tag (OCI distribution specification).
const maxTag = 128

// reuse makes an image that exists the pool's.
func reuse(ctx context.Context, x scope, s state) (state, error) {
	s, err := announce(ctx, x, s)
	if err != nil {
		return s, err
	}
	if s.build(s.decision.BuildName) != nil {
		return relabel(ctx, x, s)
	}
	x.memory.images.Lock()
	defer x.memory.images.Unlock()
	if s.decision.From != "" {
		var from mcfgv1.MachineOSBuild
		err := x.api.live.Get(ctx, client.ObjectKey{Name: s.decision.From}, &from)
		if client.IgnoreNotFound(err) != nil {
			return s, wrap(err, "read MachineOSBuild "+s.decision.From)
		}
		if err != nil || from.DeletionTimestamp != nil {
			return s, overtaken("MachineOSBuild " + s.decision.From)
		}
	}
	b := newBuild(s, x.now)
	annotate(b, manifests.AnnotationReusedImage, s.decision.Image)
	if s.decision.Reason == decide.ReasonPreBuiltImage {
		b.Labels[manifests.AnnotationPreBuiltImage] = "true"
	}
	if err := x.api.client.Create(ctx, b); err != nil {
		return s, wrap(err, "create MachineOSBuild "+b.Name)
	}
	return reuseImage(ctx, x, s, b)
}

// reuseImage gives a build the image that it was created for: it never gets a Job. It may be called again after a kill.
func reuseImage(ctx context.Context, x scope, s state, b *mcfgv1.MachineOSBuild) (state, error) {
	image := b.Annotations[manifests.AnnotationReusedImage]
	cause := machineosbuild.Cause{Reason: decide.ReasonSharedImage,
		Message: "another build has an image with this content: " + image}
	switch {
	case claimed(b):
		cause.Message = "an image with this content exists: " + image
	case isPreBuilt(b):
		cause = machineosbuild.Cause{Reason: decide.ReasonPreBuiltImage,
			Message: "the pool was installed with this image: " + image}
	}
	next := b.DeepCopy()
	if err := machineosbuild.Move(next, machineosbuild.Succeeded, cause, x.now); err != nil {
		return s, err
	}
	next.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
	if err := x.api.client.Status().Update(ctx, next); err != nil {
		return s, wrap(err, "write state of MachineOSBuild "+b.Name)
	}
	x.log.WithField("machineosbuild", b.Name).WithField("reason", cause.Reason).WithField("image", image).
		Info("image is reused")
	s.observation = s.with(next)
	return s.again(soon), nil
}

// relabel says on the decision's build which rendered config its image is for now. The node controller rolls the image
// out to a pool with that rendered config.
func relabel(ctx context.Context, x scope, s state) (state, error) {
	b := s.build(s.decision.BuildName)
	if b == nil || labelledFor(b, s.desired.rendered) {
		return s, nil
	}
	next, err := patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		metav1.SetMetaDataLabel(&b.ObjectMeta, manifests.LabelRenderedMachineConfig,
			manifests.LabelValue(s.desired.rendered))
	})
	if err != nil {
		return s, err
	}
	s.observation = s.with(next)
	return s, nil
}
