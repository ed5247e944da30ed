package buildcontroller

import (
	"context"
	"errors"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// finishDeletions releases the builds that are being deleted, once their objects and their image are gone.
func finishDeletions(ctx context.Context, x scope, s state) (state, error) {
	var kept []*mcfgv1.MachineOSBuild
	for _, b := range s.builds {
		if b.DeletionTimestamp != nil && controllerutil.ContainsFinalizer(b, manifests.FinalizerMachineOSBuild) {
			var pause time.Duration
			var err error
			if b, pause, err = finishDeletion(ctx, x, b); err != nil {
				return s, err
			}
			s = s.again(pause)
		}
		if b != nil {
			kept = append(kept, b)
		}
	}
	s.builds = kept
	return s, nil
}

// holdBuilds makes builds wait for this controller when they are deleted. An uninstallation has released those that it
// found.
func holdBuilds(ctx context.Context, x scope, s state) (state, error) {
	for _, b := range s.builds {
		held := controllerutil.ContainsFinalizer(b, manifests.FinalizerMachineOSBuild)
		if held || b.DeletionTimestamp != nil || isPreBuilt(b) {
			continue
		}
		next, err := patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
			controllerutil.AddFinalizer(b, manifests.FinalizerMachineOSBuild)
		})
		if err != nil {
			return s, err
		}
		s.observation = s.with(next)
	}
	return s, nil
}

// finishDeletion removes what belongs to a build, and the build's finalizer. It gives nil when the build is gone;
// otherwise the build waits for its image, for a pause.
func finishDeletion(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild) (*mcfgv1.MachineOSBuild, time.Duration,
	error) {
	b, err := interrupt(ctx, x, b, "")
	if err != nil {
		return b, 0, err
	}
	if err := deleteJob(ctx, x, b); err != nil {
		return b, 0, err
	}
	if err := x.api.deleteInputs(ctx, b, "Secret", "ConfigMap"); err != nil {
		return b, 0, err
	}
	if b.Status.DigestedImagePushSpec != "" {
		if pause := removeImage(ctx, x, b); pause > 0 {
			return b, pause, nil
		}
	}
	removeLog(ctx, x, b)
	_, err = patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		controllerutil.RemoveFinalizer(b, manifests.FinalizerMachineOSBuild)
	})
	if client.IgnoreNotFound(err) != nil {
		return b, 0, err
	}
	x.log.WithField("machineosbuild", b.Name).Info("build is deleted")
	x.memory.refused.Delete(b.UID)
	x.recorder.event(b, corev1.EventTypeNormal, eventBuildDeleted, "MachineOSBuild %s and its objects are deleted", b.Name)
	return nil, 0, nil
}

// removeImage deletes a build's image unless something refers to it. It gives a pause when it has to try again; in the
// end the image stays in the registry.
func removeImage(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild) time.Duration {
	x.memory.images.Lock()
	defer x.memory.images.Unlock()
	image := string(b.Status.DigestedImagePushSpec)
	log := x.log.WithField("machineosbuild", b.Name).WithField("image", image)
	refs, err := x.api.references(ctx, b)
	switch {
	case err != nil:
	case refs.running != "":
		log.WithField("for", refs.running).Info("image waits for a running build of the same content")
		return x.o.Poll
	case refs.build != "" || refs.other != "":
		log.WithField("build", refs.build).WithField("user", refs.other).Info("image stays, it is in use")
		return 0
	default:
		err = x.images.delete(ctx, b, image)
	}
	switch {
	case err == nil:
		log.Info("image is deleted")
		return 0
	case errors.Is(err, errNoAccess), x.memory.refusedFor(b.UID, x.now) > x.o.LeaveAfter:
		x.recorder.event(b, corev1.EventTypeWarning, eventImageLeftBehind, "image %s stays in the registry: %s", image, err)
		return 0
	}
	log.WithError(err).Warn("image is not deleted yet")
	return x.o.Poll
}

// removeLog deletes the log that the build's pod kept in the registry. It tries once: a log that stays does no harm.
func removeLog(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild) {
	reference := machineosbuild.CauseOf(b).Log
	if reference == "" {
		return
	}
	if err := x.images.delete(ctx, b, reference); err != nil {
		x.log.WithError(err).WithField("machineosbuild", b.Name).WithField("log", reference).
			Warn("log of a build stays in the registry")
	}
}

// readBuilds reads the builds of a MachineOSConfig that is gone from the API server: nothing comes after them.
func readBuilds(ctx context.Context, x scope, s state) (state, error) {
	var err error
	s.builds, err = x.api.buildsOf(ctx, x.name, true)
	if err == nil {
		x.memory.slots.release(x.name, s.builds)
	}
	return s, err
}

// removeBuilds ends and deletes the builds of a MachineOSConfig that is gone.
func removeBuilds(ctx context.Context, x scope, s state) (state, error) {
	for _, b := range s.builds {
		if b.DeletionTimestamp != nil {
			continue
		}
		b, err := interrupt(ctx, x, b, "")
		if err == nil {
			err = x.api.deleteBuild(ctx, b)
		}
		if err != nil {
			return s, err
		}
	}
	x.memory.setQueued(x.name, false)
	if s.config != nil {
		x.memory.desired.Delete(s.config.UID)
	}
	if x.recorder.metrics.forget(x.name) {
		x.recorder.configDeleted(x.name, s.config)
	}
	return s, nil
}
