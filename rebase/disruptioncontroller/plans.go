package disruptioncontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// ConditionEffectKnown of a pool is True when the annotation dayone.dev/plan says what the target does to its nodes;
// the reason is the plan's level. False: nobody knows yet, and why.
const ConditionEffectKnown = mcfgv1.MachineConfigPoolConditionType("EffectKnown")

// Reasons of the condition that are no levels.
const (
	reasonUnrendered = "NotRendered"
	reasonImage      = "ImageOutstanding"
	reasonUnreadable = "ConfigUnreadable"
)

// conflictInterval is how soon a pool is looked at again that somebody else has changed meanwhile: the cache shows it
// by then.
const conflictInterval = 200 * time.Millisecond

// Plan publishes what the target of the pool that the request names does to its nodes. That somebody else has changed
// the pool meanwhile is no failure: it is looked at again.
func (r *Reconciler) Plan(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.plan(ctx, req)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Reconciler) plan(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c, err := r.view.Cluster(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	l := c.Look(req.Name)
	if l == nil {
		return ctrl.Result{}, nil
	}
	if err := r.remember(ctx, l); err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.settings(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if l.Pool.Target.Config == "" {
		return ctrl.Result{}, r.condition(ctx, l.Object, false, reasonUnrendered, "the pool has no rendered config yet")
	}
	foreseen, err := disruption.ForPool(l.NodeStates(), disruption.Foresight{Target: target.Target(l.Pool.Target),
		Settings: s, Builds: c.Builds, Building: l.Building,
		Config: func(name string) (*mcfgv1.MachineConfig, error) { return r.config(ctx, name) }})
	if err != nil {
		return ctrl.Result{}, r.condition(ctx, l.Object, false, reasonUnreadable, err.Error())
	}
	plan := foreseen.Plan
	if plan.Level >= disruption.LevelDrain {
		if plan.Blocking, err = Blocking(ctx, r.live, foreseen.Draining()); err != nil {
			return ctrl.Result{}, err
		}
	}
	plan.Seconds = int64(c.Estimate(plan, l.Plan(r.o.Now()).MaxUnavailable).Seconds())
	if l.Building {
		return ctrl.Result{}, r.condition(ctx, l.Object, false, reasonImage, l.Pool.Hold+"; expected then: "+describe(plan))
	}
	text, err := plan.Encode()
	if err != nil {
		return ctrl.Result{}, err
	}
	if l.Object.Annotations[manifests.AnnotationPlan] != text {
		pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: req.Name}}
		if err := r.annotate(ctx, pool, manifests.AnnotationPlan, text); err != nil {
			return ctrl.Result{}, err
		}
		l.Object = pool // what the condition is written upon
	}
	result := ctrl.Result{}
	if plan.Level >= disruption.LevelDrain {
		result.RequeueAfter = lookAgain
	}
	return result, r.condition(ctx, l.Object, true, plan.Level.String(), describe(plan))
}

// config reads a rendered config; nil: it is gone.
func (r *Reconciler) config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, mc)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read rendered config %s: %w", name, err)
	}
	if err != nil {
		return nil, nil //nolint:nilerr // not found is an answer
	}
	return mc, nil
}

// describe says a plan in a sentence.
func describe(p disruption.PoolPlan) string {
	if p.Nodes == 0 {
		return "every node that has reported has " + p.Target.Config
	}
	out := fmt.Sprintf("%s changes %d nodes: %s", p.Target.Config, p.Nodes, p.Level)
	if steps := p.Steps(); len(steps) > 0 {
		out += " (" + strings.Join(steps, ", ") + ")"
	}
	for _, w := range p.Ways {
		if w.Level == p.Level && w.Why != "" {
			out += "; because of " + w.Why
			break
		}
	}
	if len(p.Blocking) > 0 {
		out += "; PodDisruptionBudgets that let no pod go now: " + strings.Join(p.Blocking, ", ")
	}
	if p.Seconds > 0 {
		out += fmt.Sprintf("; about %s by what nodes of this cluster needed before", (time.Duration(p.Seconds) * time.Second).
			Round(time.Second))
	}
	return out
}

// condition writes EffectKnown if it says something new.
func (r *Reconciler) condition(ctx context.Context, pool *mcfgv1.MachineConfigPool, known bool, reason,
	message string) error {
	want := mcfgv1.MachineConfigPoolCondition{Type: ConditionEffectKnown, Status: corev1.ConditionFalse, Reason: reason,
		Message: message}
	if known {
		want.Status = corev1.ConditionTrue
	}
	if len(want.Message) > maxMessage {
		want.Message = strings.ToValidUTF8(want.Message[:maxMessage], "")
	}
	want.LastTransitionTime = metav1.NewTime(r.o.Now()).Rfc3339Copy()
	changed := pool.DeepCopy()
	at := slices.IndexFunc(changed.Status.Conditions,
		func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == want.Type })
	if at < 0 {
		changed.Status.Conditions = append(changed.Status.Conditions, want)
	} else {
		have := &changed.Status.Conditions[at]
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		if *have == want {
			return nil
		}
		*have = want
	}
	if err := r.client.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(pool, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write status of pool %s: %w", pool.Name, err)
	}
	return nil
}
