package rendercontroller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
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
)

// Reasons of the condition RenderDegraded.
const (
	ReasonRendered = "Rendered"
	ReasonRefused  = "RenderRefused"
	ReasonFailed   = "RenderFailed"
)

// maxMessage bounds the condition's message in bytes; the API takes 32 KiB, people read the first lines.
const maxMessage = 4 << 10

// conflictInterval is how soon a pool is looked at again that somebody else has changed meanwhile: the cache shows it
// by then.
const conflictInterval = 200 * time.Millisecond

// Reconciler renders one pool a call.
type Reconciler struct {
	client client.Client
	// live reads past the cache: what must not be missed is read with it.
	live  client.Reader
	o     Options
	known func(client.Object) bool
}

// Reconcile renders the pool that the request names, points it at the result, removes what is old and says how it went.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pool mcfgv1.MachineConfigPool
	if err := r.client.Get(ctx, request.NamespacedName, &pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pool.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // its rendered configs go with it
	}
	failure := r.render(ctx, &pool)
	if apierrors.IsConflict(failure) {
		// somebody wrote meanwhile: no state of the pool, and no failure
		return ctrl.Result{RequeueAfter: conflictInterval}, nil
	}
	if failure == nil {
		failure = r.collect(ctx, &pool)
	}
	err := r.condition(ctx, &pool, failure)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictInterval}, nil // the next look says it
	}
	if report.Of(failure) != nil {
		return ctrl.Result{}, err // the same input is refused again; a change of it wakes the pool
	}
	return ctrl.Result{}, errors.Join(failure, err)
}

// render makes the pool's config and points the pool at it. pool is as the API has it afterwards.
func (r *Reconciler) render(ctx context.Context, pool *mcfgv1.MachineConfigPool) error {
	set, err := r.gather(ctx, pool)
	if err != nil {
		return err
	}
	result, err := render.Render(set, render.Options{
		Versions: r.o.Versions, Unbuilt: render.IgnoreUnbuilt, ComponentsOnly: r.o.ComponentsOnly, Pools: []string{pool.Name},
	})
	if err != nil {
		return err
	}
	config := result.Config(pool.Name)
	if config == nil {
		return fmt.Errorf("render pool %s: it went meanwhile", pool.Name)
	}
	if err := r.keepImage(ctx, set, pool.Name); err != nil {
		return err
	}
	if err := r.write(ctx, config); err != nil {
		return err
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
	r.o.Log.WithField("pool", pool.Name).WithField("config", config.Name).Info("pool has a new config")
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

// write makes sure that the rendered config is in the API with exactly this spec.
func (r *Reconciler) write(ctx context.Context, config *mcfgv1.MachineConfig) error {
	var there mcfgv1.MachineConfig
	err := r.client.Get(ctx, client.ObjectKeyFromObject(config), &there)
	if apierrors.IsNotFound(err) {
		if err := r.client.Create(ctx, config.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %s: %w", config.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", config.Name, err)
	}
	same, err := sameSpec(&there, config)
	if err != nil {
		return err
	}
	// What owners say that follows a change is no part of the name: it may change while the content stays.
	said := there.Annotations[manifests.AnnotationPostConfigActions] == config.Annotations[manifests.AnnotationPostConfigActions]
	if same && said && metav1.GetControllerOf(&there) != nil {
		return nil
	}
	// Its name says what it holds, so whoever changed it was wrong. One that bootstrap posted gets its owner here.
	there.Spec, there.OwnerReferences = config.Spec, config.OwnerReferences
	if !said {
		setAnnotation(&there, manifests.AnnotationPostConfigActions,
			config.Annotations[manifests.AnnotationPostConfigActions])
	}
	if err := r.client.Update(ctx, &there); err != nil {
		return fmt.Errorf("restore %s: %w", config.Name, err)
	}
	r.o.Log.WithField("config", config.Name).Info("rendered config restored")
	return nil
}

// setAnnotation changes one; an empty value takes it away.
func setAnnotation(o client.Object, key, value string) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	o.SetAnnotations(annotations)
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
func (r *Reconciler) condition(ctx context.Context, pool *mcfgv1.MachineConfigPool, failure error) error {
	want := mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolRenderDegraded, Status: corev1.ConditionFalse,
		Reason: ReasonRendered}
	if failure != nil {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, ReasonFailed, failure.Error()
		if len(want.Message) > maxMessage {
			want.Message = want.Message[:maxMessage]
		}
		if report.Of(failure) != nil {
			want.Reason = ReasonRefused
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
	return nil
}
