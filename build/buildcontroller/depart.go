package buildcontroller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// depart lets builds go that are being deleted, once what belongs to them is gone.
func (x *run) depart(ctx context.Context) error {
	left := x.own[:0:0]
	for _, b := range x.own {
		if b.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(b, manifests.FinalizerMachineOSBuild) {
			left = append(left, b)
			continue
		}
		done, err := x.clear(ctx, b)
		if err != nil {
			return err
		}
		if !done {
			left = append(left, b)
		}
	}
	x.own = left
	return nil
}

// clear removes the objects and the image of a build that is being deleted. It is false when the registry has to be
// asked again.
func (x *run) clear(ctx context.Context, b *mcfgv1.MachineOSBuild) (bool, error) {
	if !machineosbuild.StateOf(b).Terminal() {
		if err := x.interrupt(ctx, b); err != nil {
			return false, err
		}
	}
	if err := x.deleteJob(ctx, b); err != nil {
		return false, err
	}
	if err := x.removeInputs(ctx, b, false); err != nil {
		return false, err
	}
	if b.Status.DigestedImagePushSpec != "" && !x.removeImage(ctx, b) {
		return false, nil
	}
	x.removeLog(ctx, b)
	old := b.DeepCopy()
	controllerutil.RemoveFinalizer(b, manifests.FinalizerMachineOSBuild)
	if err := x.client.Patch(ctx, b, client.MergeFromWithOptions(old,
		client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("let MachineOSBuild %s go: %w", b.Name, err)
	}
	x.log.WithField("machineosbuild", b.Name).Info("build is gone")
	x.refusals.forget(b.UID)
	x.event(b, corev1.EventTypeNormal, EventBuildDeleted, "MachineOSBuild %s and what belonged to it are gone", b.Name)
	return true, nil
}

// removeImage deletes a build's image unless something refers to it. It is false when the registry did not do it and
// shall be asked again; in the end the image stays behind.
func (x *run) removeImage(ctx context.Context, b *mcfgv1.MachineOSBuild) bool {
	x.images.Lock()
	defer x.images.Unlock()
	image := string(b.Status.DigestedImagePushSpec)
	log := x.log.WithField("machineosbuild", b.Name).WithField("image", image)
	other, err := x.underway(ctx, b)
	if err == nil && other != "" {
		log.WithField("for", other).Info("image waits, a build of the same content is under way")
		x.again(lookForPlace)
		return false
	}
	var use use
	if err == nil {
		use, err = x.references(ctx, image, b)
	}
	if err == nil && use.any() {
		log.WithField("by", use.first()).Info("image stays, it is referred to")
		return true
	}
	access, ok := Access{}, false
	if err == nil {
		access, ok, err = x.access(ctx, b.Annotations[manifests.AnnotationRenderedImagePushSecret])
	}
	switch {
	case err == nil && !ok:
		x.event(b, corev1.EventTypeWarning, EventImageLeftBehind, "image %s stays in the registry: its push Secret is gone",
			image)
		return true
	case err == nil:
		err = x.o.Images.Delete(ctx, image, access)
	}
	if err == nil {
		log.Info("image is deleted")
		return true
	}
	if b.DeletionTimestamp != nil && x.refusals.since(b.UID, x.now) > x.o.LeaveAfter {
		x.event(b, corev1.EventTypeWarning, EventImageLeftBehind, "image %s stays in the registry: %s", image, err)
		return true
	}
	log.WithError(err).Warn("image is not deleted yet")
	x.again(lookForPlace)
	return false
}

// refusals are when this process first failed to delete a build's image. That is measured and not read off the
// deletion's time, which is the API server's: a clock that is set makes no image stay behind.
type refusals struct {
	mu    sync.Mutex
	first map[types.UID]time.Time
}

// since is how long ago a build's first refusal was; this is one.
func (r *refusals) since(build types.UID, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first = map[types.UID]time.Time{}
	}
	if _, known := r.first[build]; !known {
		r.first[build] = now
	}
	return now.Sub(r.first[build])
}

func (r *refusals) forget(build types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.first, build)
}

// removeLog deletes the log that the build's pod kept in the registry. It is tried once: a log that stays behind is in
// nobody's way.
func (x *run) removeLog(ctx context.Context, b *mcfgv1.MachineOSBuild) {
	reference := machineosbuild.CauseOf(b).Log
	if reference == "" {
		return
	}
	access, ok, err := x.access(ctx, b.Annotations[manifests.AnnotationRenderedImagePushSecret])
	if err == nil && ok {
		err = x.o.Images.Delete(ctx, reference, access)
	}
	if err != nil {
		x.log.WithError(err).WithField("machineosbuild", b.Name).WithField("log", reference).
			Warn("log of a build stays in the registry")
	}
}

// dismantle is for a MachineOSConfig that is gone: its builds end, and nothing of them stays.
func (x *run) dismantle(ctx context.Context) error {
	if err := x.loadBuilds(ctx, true); err != nil {
		return err
	}
	if err := x.depart(ctx); err != nil {
		return err
	}
	for _, b := range x.own {
		if b.DeletionTimestamp == nil {
			if err := x.interrupt(ctx, b); err != nil {
				return err
			}
			if err := x.client.Delete(ctx, b); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete MachineOSBuild %s: %w", b.Name, err)
			}
		}
	}
	x.waiters.forget(x.name)
	if x.config != nil {
		x.wishes.forget(x.config.UID)
	}
	x.metrics.forget(x.name)
	return x.releasePool(ctx)
}

// tidy removes what is not needed any more: Jobs of builds that ended, attempts that a rebuild clears, history.
func (x *run) tidy(ctx context.Context) error {
	for _, b := range x.own {
		if state := machineosbuild.StateOf(b); !state.Terminal() || state == machineosbuild.Failed {
			continue
		}
		var j batchv1.Job
		err := x.client.Get(ctx, client.ObjectKey{Namespace: x.o.Namespace, Name: job.JobName(b.Name)}, &j)
		if err == nil && j.DeletionTimestamp == nil {
			err = x.deleteJob(ctx, b)
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	for _, name := range x.d.Forget {
		if err := x.remove(ctx, x.build(name)); err != nil {
			return err
		}
	}
	return x.prune(ctx)
}

func (x *run) remove(ctx context.Context, b *mcfgv1.MachineOSBuild) error {
	if b == nil || b.DeletionTimestamp != nil {
		return nil
	}
	if err := x.client.Delete(ctx, b); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MachineOSBuild %s: %w", b.Name, err)
	}
	return nil
}

// prune bounds the history. What is current or in use stays, and so does a build whose image only a node or a pool
// still refers to: with the build the knowledge of the image would go.
func (x *run) prune(ctx context.Context) error {
	var old []*mcfgv1.MachineOSBuild
	kept := 0
	current := x.config.Annotations[manifests.AnnotationCurrentBuild]
	using := inUse(x.config, x.own)
	for _, b := range x.own {
		switch {
		case !machineosbuild.StateOf(b).Terminal() || b.DeletionTimestamp != nil:
		case b.Name == current || b.Name == using || b.Name == x.d.BuildName || b.Name == x.in.Accepted:
			kept++
		default:
			old = append(old, b)
		}
	}
	slices.SortFunc(old, func(a, b *mcfgv1.MachineOSBuild) int {
		return b.Status.BuildEnd.Time.Compare(a.Status.BuildEnd.Time)
	})
	for i, b := range old {
		if kept+i < x.o.History {
			continue
		}
		if image := string(b.Status.DigestedImagePushSpec); image != "" {
			use, err := x.references(ctx, image, b)
			if err != nil {
				return err
			}
			if use.any() && use.build == "" {
				x.again(x.o.TidyInterval)
				continue
			}
		}
		if err := x.remove(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
