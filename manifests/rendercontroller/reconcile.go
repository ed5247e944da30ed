package rendercontroller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller/inputs"
)

// Reasons of the condition RenderDegraded.
const (
	reasonRendered = "Rendered"
	reasonRefused  = "RenderRefused"
	reasonFailed   = "RenderFailed"
)

// maxMessage bounds the condition's message in bytes; the API takes 32 KiB, people read the first lines.
const maxMessage = 4 << 10

// conflictInterval is how soon a pool is reconciled again after a conflict: the cache has the other change by then.
const conflictInterval = 200 * time.Millisecond

// reconciler renders one pool a call.
type reconciler struct {
	client client.Client
	// live reads past the cache: what must not be missed is read with it.
	live  client.Reader
	o     Options
	known func(client.Object) bool
	shown shown
}

// Reconcile renders the pool that the request names, points it at the result, removes old configs and sets
// RenderDegraded.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pool mcfgv1.MachineConfigPool
	if err := r.client.Get(ctx, request.NamespacedName, &pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.shown.forget(request.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pool.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // its rendered configs go with it
	}
	failure := r.render(ctx, &pool)
	if held, ok := errors.AsType[inputs.HeldError](failure); ok {
		r.o.Log.WithField("pool", pool.Name).WithField("reason", held.Text).Info("rendering waits")
		return ctrl.Result{}, nil // the writing of the rest wakes the pool
	}
	if apierrors.IsConflict(failure) {
		// another client wrote meanwhile: no state of the pool, and no failure
		return ctrl.Result{RequeueAfter: conflictInterval}, nil
	}
	if failure == nil {
		var removed []string
		removed, failure = collect(ctx, r.client, r.live, &pool, r.o.Keep)
		for _, name := range removed {
			r.o.Log.WithField("pool", pool.Name).WithField("config", name).Info("old config removed")
		}
	}
	err := r.condition(ctx, &pool, failure)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictInterval}, nil // the next reconcile sets it
	}
	if report.Of(failure) != nil {
		return ctrl.Result{}, err // the same input is refused again; a change of it wakes the pool
	}
	return ctrl.Result{}, errors.Join(failure, err)
}

// render makes the pool's config and points the pool at it. pool is as the API has it afterwards.
func (r *reconciler) render(ctx context.Context, pool *mcfgv1.MachineConfigPool) error {
	set, how, err := inputs.Gatherer{Client: r.client, Known: r.known, Live: r.live, Options: inputs.Options{
		Versions: r.o.Versions, BaseImage: r.o.BaseImage, ComponentsOnly: r.o.ComponentsOnly}}.Gather(ctx, pool)
	if err != nil {
		return err
	}
	result, err := render.Render(set, how)
	if err != nil {
		return err
	}
	config := result.Config(pool.Name)
	if config == nil {
		return fmt.Errorf("render pool %s: the pool was deleted meanwhile", pool.Name)
	}
	if err := keepImage(ctx, r.client, set, pool.Name); err != nil {
		return err
	}
	wrote, err := write(ctx, r.client, config)
	if err != nil {
		return err
	}
	r.shown.rendered(pool, config, wrote)
	log := r.o.Log.WithField("pool", pool.Name).WithField("config", config.Name)
	if wrote == restored {
		log.Info("rendered config restored")
	}
	want := mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: corev1.ObjectReference{Name: config.Name},
		Source: sources(result, pool)}
	if equality.Semantic.DeepEqual(pool.Spec.Configuration, want) {
		return nil
	}
	before := pool.DeepCopy()
	pool.Spec.Configuration = want
	if err := r.client.Patch(ctx, pool, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("point pool %s at %s: %w", pool.Name, config.Name, err)
	}
	log.Info("pool has a new config")
	return nil
}

// sources are the MachineConfigs that the pool selects, by name: a MachineConfig of another role changes nothing here.
func sources(result *render.Result, pool *mcfgv1.MachineConfigPool) []corev1.ObjectReference {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil {
		return nil // it was refused before
	}
	var out []corev1.ObjectReference
	for i, c := range result.Components {
		if selector.Matches(labels.Set(c.Object.Labels)) {
			out = append(out, result.Pools[0].Spec.Configuration.Source[i])
		}
	}
	slices.SortStableFunc(out, func(a, b corev1.ObjectReference) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// outcome is what was done to have a rendered config in the API.
type outcome int

const (
	unchanged outcome = iota
	made
	restored
)

// write makes sure that the rendered config is in the API with exactly this spec.
func write(ctx context.Context, c client.Client, config *mcfgv1.MachineConfig) (outcome, error) {
	var there mcfgv1.MachineConfig
	err := c.Get(ctx, client.ObjectKeyFromObject(config), &there)
	if apierrors.IsNotFound(err) {
		if err := c.Create(ctx, config.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return unchanged, fmt.Errorf("create %s: %w", config.Name, err)
		}
		return made, nil
	}
	if err != nil {
		return unchanged, fmt.Errorf("get %s: %w", config.Name, err)
	}
	same, err := sameSpec(&there, config)
	if err != nil {
		return unchanged, err
	}
	// The owners' actions are no part of the name: they may change while the content stays.
	const key = manifests.AnnotationPostConfigActions
	actions := config.Annotations[key]
	if same && there.Annotations[key] == actions && metav1.GetControllerOf(&there) != nil {
		return unchanged, nil
	}
	// Its name says what it holds, so any change of the spec was wrong. One that bootstrap posted gets its owner here.
	there.Spec, there.OwnerReferences = config.Spec, config.OwnerReferences
	if actions == "" {
		delete(there.Annotations, key)
	} else {
		metav1.SetMetaDataAnnotation(&there.ObjectMeta, key, actions)
	}
	if err := c.Update(ctx, &there); err != nil {
		return unchanged, fmt.Errorf("restore %s: %w", config.Name, err)
	}
	return restored, nil
}

func sameSpec(a, b *mcfgv1.MachineConfig) (bool, error) {
	left, err := manifests.Marshal(a.Spec)
	if err != nil {
		return false, err
	}
	right, err := manifests.Marshal(b.Spec)
	if err != nil {
		return false, err
	}
	return bytes.Equal(left, right), nil
}

// condition writes RenderDegraded if it has changed; the other conditions are others'.
func (r *reconciler) condition(ctx context.Context, pool *mcfgv1.MachineConfigPool, failure error) error {
	want := mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolRenderDegraded, Status: corev1.ConditionFalse,
		Reason: reasonRendered}
	if failure != nil {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, reasonFailed, failure.Error()
		if len(want.Message) > maxMessage {
			want.Message = want.Message[:maxMessage]
		}
		if report.Of(failure) != nil {
			want.Reason = reasonRefused
		}
	}
	before := pool.DeepCopy()
	at := -1
	for i, c := range pool.Status.Conditions {
		if c.Type == want.Type {
			at = i
		}
	}
	if at < 0 {
		pool.Status.Conditions = append(pool.Status.Conditions, mcfgv1.MachineConfigPoolCondition{Type: want.Type})
		at = len(pool.Status.Conditions) - 1
	}
	have := &pool.Status.Conditions[at]
	if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return nil
	}
	want.LastTransitionTime = have.LastTransitionTime
	if have.Status != want.Status {
		want.LastTransitionTime = metav1.NewTime(r.o.Now())
	}
	*have = want
	if err := r.client.Status().Patch(ctx, pool,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write status of pool %s: %w", pool.Name, err)
	}
	if failure != nil {
		r.shown.refused(pool)
	}
	return nil
}
