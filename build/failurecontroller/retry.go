package failurecontroller

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
)

// ask requests the rebuild: it counts first and asks then, so that no retry goes uncounted. The cache may be late, and
// MCO may have begun the rebuild already: the API server says what is true.
func (r *reconciler) ask(ctx context.Context, w *world, b *mcfgv1.MachineOSBuild, now mcobuild.Record) error {
	config, build := &mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}
	err := r.records.live.Get(ctx, client.ObjectKeyFromObject(w.config), config)
	if err == nil {
		err = r.records.live.Get(ctx, client.ObjectKeyFromObject(b), build)
	}
	if apierrors.IsNotFound(err) {
		return nil // an event tells of it
	}
	if err != nil {
		return fmt.Errorf("read MachineOSConfig %s and its build: %w", w.config.Name, err)
	}
	fresh := *w
	fresh.config = config
	if build.UID != b.UID || machineosbuild.StateOf(build) != machineosbuild.Failed ||
		!fresh.situation(build, now, r.o.Now()).Decide(r.o.Backoff).Ask {
		return nil
	}
	if now.Asked != string(b.UID) {
		now.Retries, now.Asked = now.Retries+1, string(b.UID)
		now.AskedAt = &metav1.Time{Time: r.o.Now().Truncate(time.Second)}
		if err := r.records.write(ctx, now); err != nil {
			return err
		}
		r.metrics.retries.WithLabelValues(now.Pool).Inc()
	}
	before := config.DeepCopy()
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[manifests.AnnotationRebuild] = ""
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.cached.Patch(ctx, config, patch); err != nil {
		return fmt.Errorf("request a rebuild of MachineOSConfig %s: %w", config.Name, err)
	}
	r.o.Log.WithField("build", b.Name).WithField("retry", now.Retries).Info("a rebuild is requested")
	return nil
}

// gone finishes the records of builds that are not there any more.
func (r *reconciler) gone(ctx context.Context, w *world, kept []metav1.PartialObjectMetadata) (time.Duration, error) {
	for _, m := range kept {
		name := m.Annotations[manifests.LabelMachineOSBuild]
		if w.has(m) || machineosbuild.State(m.Annotations[manifests.AnnotationBuildOutcome]).Terminal() ||
			m.Annotations[manifests.AnnotationBuildOutcome] == mcobuild.OutcomeGone {
			continue
		}
		old, err := r.records.read(ctx, name)
		if err != nil || old.Build == "" {
			return 0, err
		}
		now := old
		b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(old.UID)}}
		seen := r.logs.of(b, true)
		now.Outcome, now.Ended = mcobuild.OutcomeGone, &metav1.Time{Time: r.o.Now().Truncate(time.Second)}
		r.witness(w, b, seen, &now)
		now.Summary = mcobuild.Summarize(now, mcobuild.Retry{
			Why: "MachineOSBuild " + name + " was deleted before it ended; another build of the pool may have taken its place"})
		if err := r.records.write(ctx, now); err != nil {
			return 0, err
		}
		r.logs.forget(seen)
	}
	return 0, nil
}
