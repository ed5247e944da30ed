package disruptioncontroller

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/rollout"
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

// conflictInterval is how soon a pool is reconciled again that somebody else has changed meanwhile: the cache shows it
// by then.
const conflictInterval = 200 * time.Millisecond

// Plans publishes what each pool's target does to the pool's nodes. Make it with NewPlans.
type Plans struct {
	client client.Client
	// live reads pods and PodDisruptionBudgets, of which a cluster has too many to keep.
	live client.Reader
	view *fleet.View
	o    Options
}

// NewPlans makes a reconciler. c's reads may come from a cache, those of live must not.
func NewPlans(c client.Client, live client.Reader, o Options) *Plans {
	return &Plans{client: c, live: live, view: fleet.New(c), o: o.withDefaults()}
}

// Reconcile publishes what the target of the pool that the request names does to its nodes. That somebody else has
// changed the pool meanwhile is no failure: the pool is reconciled again.
func (r *Plans) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.publish(ctx, req.Name)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Plans) publish(ctx context.Context, name string) (ctrl.Result, error) {
	c, err := r.view.Cluster(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	pool := c.View(name)
	if pool == nil {
		return ctrl.Result{}, nil
	}
	soft := softReboots(pool)
	if err := noteTimes(ctx, r.client, pool, r.o.Now()); err != nil {
		return ctrl.Result{}, err
	}
	s, err := readSettings(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	if pool.Pool.Target.Config == "" {
		return ctrl.Result{}, r.condition(ctx, pool.Object, soft, false, reasonUnrendered,
			"the pool has no rendered config yet")
	}
	result := ctrl.Result{}
	expected, coming, err := r.expect(ctx, c, pool, s)
	if err != nil {
		return ctrl.Result{}, r.condition(ctx, pool.Object, soft, false, reasonUnreadable, err.Error())
	}
	if pool.Building {
		return ctrl.Result{}, r.condition(ctx, pool.Object, soft, false, reasonImage, pool.Pool.Hold+"; "+expected)
	}
	plan, draining, err := r.foresee(ctx, c, pool, s, nil)
	if err != nil {
		return ctrl.Result{}, r.condition(ctx, pool.Object, soft, false, reasonUnreadable, err.Error())
	}
	if plan.Level >= disruption.LevelDrain {
		if plan.Blocking, err = fleet.Blocking(ctx, r.live, draining); err != nil {
			return ctrl.Result{}, err
		}
		result.RequeueAfter = recompute
	}
	text, err := plan.Encode()
	if err != nil {
		return ctrl.Result{}, err
	}
	written := pool.Object
	if written.Annotations[manifests.AnnotationPlan] != text {
		written = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := annotate(ctx, r.client, written, manifests.AnnotationPlan, text); err != nil {
			return ctrl.Result{}, err
		}
	}
	if coming {
		return result, r.condition(ctx, written, soft, false, reasonImage,
			plan.Describe()+"; another image follows; "+expected)
	}
	return result, r.condition(ctx, written, soft, true, plan.Level.String(), plan.Describe())
}

// expect says what the image that the pool gets next does to the nodes; coming is false when there is none.
func (r *Plans) expect(ctx context.Context, c *rollout.Cluster, pool *rollout.PoolView,
	s disruption.Settings) (said string, coming bool, err error) {
	build, known := pool.Coming()
	switch {
	case !known:
		return "what it does to the nodes is known when its build has begun", true, nil
	case build == nil:
		return "", false, nil
	}
	plan, _, err := r.foresee(ctx, c, pool, s, build)
	if err != nil {
		return "", true, err
	}
	return "expected then: " + plan.Describe(), true, nil
}

// foresee computes what the pool's target does to its nodes, with the image of a build in the place of its own; nil:
// with its own. It names the nodes that drain.
func (r *Plans) foresee(ctx context.Context, c *rollout.Cluster, pool *rollout.PoolView, s disruption.Settings,
	coming *mcfgv1.MachineOSBuild) (plan disruption.PoolPlan, draining map[string]bool, err error) {
	to, builds := pool.With(coming, c.Builds)
	foreseen, err := disruption.ForPool(pool.NodeStates(), disruption.Foresight{Target: to, Settings: s, Builds: builds,
		Reboot: pool.Reboots(),
		Config: func(name string) (*mcfgv1.MachineConfig, error) { return renderedConfig(ctx, r.client, name) }})
	if err != nil {
		return plan, nil, err
	}
	plan = foreseen.Plan
	plan.Seconds = int64(c.Estimate(plan, pool.Plan(r.o.Now()).MaxUnavailable).Seconds())
	return plan, foreseen.Draining(), nil
}

// renderedConfig reads a rendered config; nil: it is gone.
func renderedConfig(ctx context.Context, c client.Reader, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, mc)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read rendered config %s: %w", name, err)
	}
	if err != nil {
		return nil, nil //nolint:nilerr // not found is an answer
	}
	return mc, nil
}

// condition writes EffectKnown, and SoftReboots where there is one, if they say something new.
func (r *Plans) condition(ctx context.Context, pool *mcfgv1.MachineConfigPool, soft *mcfgv1.MachineConfigPoolCondition,
	known bool, reason, message string) error {
	want := mcfgv1.MachineConfigPoolCondition{Type: ConditionEffectKnown, Status: corev1.ConditionFalse, Reason: reason,
		Message: bounded(message)}
	if known {
		want.Status = corev1.ConditionTrue
	}
	changed := pool.DeepCopy()
	news := manifests.SetPoolCondition(&changed.Status.Conditions, want, r.o.Now())
	if soft != nil {
		news = manifests.SetPoolCondition(&changed.Status.Conditions, *soft, r.o.Now()) || news
	}
	if !news {
		return nil
	}
	if err := r.client.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(pool, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write status of pool %s: %w", pool.Name, err)
	}
	return nil
}

// gathered asks for the pools' plans some time after a node has changed: when a whole fleet moves, one reconciliation
// stands for many nodes.
func (r *Plans) gathered() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, o client.Object, q queue) {
		for _, request := range r.allPools(ctx, o) {
			q.AddAfter(request, gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

func (r *Plans) allPools(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		r.o.Log.WithError(err).Warn("cannot list pools")
		return nil
	}
	out := make([]reconcile.Request, 0, len(pools.Items))
	for i := range pools.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return out
}
