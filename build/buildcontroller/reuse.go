package buildcontroller

import (
	"context"
	"fmt"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// imageLock keeps an image from being taken over by one MachineOSConfig while another one's build of it is removed.
type imageLock struct{ sync.Mutex }

// verify makes sure that an image that becomes the pool's again is still there. Only a registry that says that it has
// it no more makes a difference: one that refuses or fails does not.
func (x *run) verify(ctx context.Context) error {
	b := x.build(x.d.BuildName)
	if b == nil {
		return nil
	}
	access, ok, err := x.access(ctx, b.Annotations[manifests.AnnotationRenderedImagePushSecret])
	if err != nil || !ok {
		return err
	}
	exists, err := x.o.Images.Exists(ctx, x.d.Image, access)
	switch {
	case err != nil:
		x.log.WithError(err).WithField("image", x.d.Image).Warn("image could not be looked for and counts as there")
	case !exists:
		x.gone[b.Name] = true
		if err := x.input(ctx); err != nil {
			return err
		}
		x.d = decide.Decide(x.in)
	}
	return nil
}

// reuse makes an image that exists the pool's.
func (x *run) reuse(ctx context.Context) error {
	if err := x.announce(ctx, x.d.BuildName); err != nil {
		return err
	}
	if b := x.build(x.d.BuildName); b != nil {
		return x.relabel(ctx, b)
	}
	x.images.Lock()
	defer x.images.Unlock()
	if x.d.From != "" {
		var from mcfgv1.MachineOSBuild
		err := x.live.Get(ctx, client.ObjectKey{Name: x.d.From}, &from)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read MachineOSBuild %s: %w", x.d.From, err)
		}
		if err != nil || from.DeletionTimestamp != nil {
			return x.moved("MachineOSBuild " + x.d.From)
		}
	}
	return x.adopt(ctx)
}

// adopt makes the MachineOSBuild of an image that was built elsewhere: it never gets a Job.
func (x *run) adopt(ctx context.Context) error {
	b := x.newBuild()
	b.Annotations[manifests.AnnotationReusedImage] = x.d.Image
	if x.d.Reason == decide.ReasonPreBuiltImage {
		b.Labels[manifests.AnnotationPreBuiltImage] = "true"
		b.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(x.wanted.repository + ":" + tagOf(b))
	}
	if err := x.client.Create(ctx, b); err != nil {
		return fmt.Errorf("make MachineOSBuild %s: %w", b.Name, err)
	}
	x.own = append(x.own, b)
	return x.take(ctx, b)
}

// take gives a build the image that it was made for. It may be called again after a kill.
func (x *run) take(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	image := b.Annotations[manifests.AnnotationReusedImage]
	cause := machineosbuild.Cause{Reason: decide.ReasonSharedImage,
		Message: "another build has an image with this content: " + image}
	if _, ok := b.Labels[manifests.AnnotationPreBuiltImage]; ok {
		cause = machineosbuild.Cause{Reason: decide.ReasonPreBuiltImage, Message: "the pool was installed with this image: " +
			image}
	}
	if err := machineosbuild.Move(b, machineosbuild.Succeeded, cause, x.now); err != nil {
		return err
	}
	b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
	if err := x.client.Status().Update(ctx, b); err != nil {
		return fmt.Errorf("write state of MachineOSBuild %s: %w", b.Name, err)
	}
	x.log.WithField("machineosbuild", b.Name).WithField("reason", cause.Reason).WithField("image", image).
		Info("image is reused")
	x.again(soon)
	return nil
}

// takeOver gives an address to a build that bootstrap or MCO made for what the pool asks for now.
func (x *run) takeOver(ctx context.Context) error {
	for _, b := range x.own {
		_, preBuilt := b.Labels[manifests.AnnotationPreBuiltImage]
		if x.wanted.problem != nil || !preBuilt || b.Annotations[manifests.AnnotationBuildAddress] != "" ||
			b.Spec.MachineConfig.Name != x.wanted.config {
			continue
		}
		if err := x.note(ctx, b, map[string]string{manifests.AnnotationBuildAddress: x.wanted.address,
			manifests.AnnotationBuildGround: x.wanted.ground}); err != nil {
			return err
		}
	}
	return nil
}

// labelsDiffer tells whether the build in use carries the name of another rendered config with the same content.
func (x *run) labelsDiffer() bool {
	b := x.build(x.d.BuildName)
	return b != nil && b.Labels[manifests.LabelRenderedMachineConfig] != machineosbuild.LabelValue(x.wanted.config)
}

// relabel says which rendered config the image is now for. The node controller rolls the image out to a pool whose
// rendered config it is.
func (x *run) relabel(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	if b == nil || !x.labelsDiffer() {
		return nil
	}
	old := b.DeepCopy()
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	b.Labels[manifests.LabelRenderedMachineConfig] = machineosbuild.LabelValue(x.wanted.config)
	if err := x.client.Patch(ctx, b, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("label MachineOSBuild %s: %w", b.Name, err)
	}
	return nil
}

// tagOf is the tag that belongs to a build alone.
func tagOf(b *mcfgv1.MachineOSBuild) string {
	spec := string(b.Spec.RenderedImagePushSpec)
	return spec[len(installconfig.Repository(spec))+1:]
}

// pin gives a build's image the build's own tag: the tag of its content address moves on with the next build of the
// same content, and a registry may collect what has no tag.
func (x *run) pin(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	access, ok, err := x.access(ctx, b.Annotations[manifests.AnnotationRenderedImagePushSecret])
	if err != nil || !ok {
		return err
	}
	there, err := x.o.Images.Tag(ctx, string(b.Status.DigestedImagePushSpec), tagOf(b), access)
	if err == nil && !there {
		x.log.WithField("machineosbuild", b.Name).Warn("the registry does not have the image of a build")
	}
	return err
}

// pinBestEffort is for a build that has just ended: that the registry does not answer now is no reason to lose the
// image.
func (x *run) pinBestEffort(ctx context.Context, b *mcfgv1.MachineOSBuild) {
	if err := x.pin(ctx, b); err != nil {
		x.log.WithError(err).WithField("machineosbuild", b.Name).Warn("image keeps the tag of its content address only")
	}
}

// pinInUse is for a rebuild, which takes the tag of the content address away from the image in use. It waits for a
// registry that does not do it: an image that nodes run must not lose its last tag.
func (x *run) pinInUse(ctx context.Context) *decide.Problem {
	b := x.build(x.in.InUse)
	if !x.d.Forced || b == nil {
		return nil
	}
	if err := x.pin(ctx, b); err != nil {
		return &decide.Problem{Reason: ReasonRegistry, Waits: true,
			Message: fmt.Sprintf(
				"the image in use must keep a tag before it is built again, and its registry does not take one: %s", err)}
	}
	return nil
}
