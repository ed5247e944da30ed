package buildcontroller

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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
	err = watching(mgr, "machine-os-build-beside", r).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("start controller of MachineOSBuilds beside MCO: %w", err)
	}
	return nil
}
