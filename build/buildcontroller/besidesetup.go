package buildcontroller

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// AddBeside adds the controller that builds what a running MCO asks for, to a manager whose cache has CacheOptions. Add
// is for clusters without MCO; no manager has both.
func AddBeside(ctx context.Context, mgr ctrl.Manager, o Options) error {
	r, err := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("dayone-builder"), o)
	if err != nil {
		return err
	}
	r.steps = besideSteps
	if err := indexObjects(ctx, mgr); err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("machine-os-build-beside").
		For(&mcfgv1.MachineOSConfig{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			metaChanged()))).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(r.ofBuild)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(ofBuildObject)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofBuildObject)).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.o.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("start controller of MachineOSBuilds beside MCO: %w", err)
	}
	return nil
}
