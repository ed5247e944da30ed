package draincontroller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/drain"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// name is the controller's, in logs, metrics and events.
const name = "drain-controller"

const (
	// Limit is after which time a drain counts as failed; it is tried on. MCO's limit.
	Limit = time.Hour
	// slowAfter is after which time a drain counts as slow, which an event tells. MCO's DrainRequeueFailingThreshold.
	slowAfter = 10 * time.Minute
	// firstPoll is how soon a node with remaining pods is checked again at first: many pods leave at once. The pause grows
	// with the drain to pollInterval; slowInterval is that of a drain that has failed.
	firstPoll    = time.Second
	pollInterval = 5 * time.Second
	slowInterval = time.Minute
	// reportInterval is how often the pods that remain are reported: at each check it would be the most written object of
	// a rollout.
	reportInterval = 30 * time.Second
	// conflictInterval is how soon a node is reconciled again that has changed meanwhile: the cache shows it by then.
	conflictInterval = 200 * time.Millisecond
	// stepLimit bounds one step, which asks for the eviction of every pod of a node.
	stepLimit = 90 * time.Second
	// workers drain nodes in parallel; a step only asks and does not wait for pods.
	workers = 5
)

// Options of the controller. The zero value works.
type Options struct {
	// Log gets what is done; default: nothing.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Metrics gets the controller's metrics; default: no metrics.
	Metrics prometheus.Registerer
}

// Reconciler serves one node's request. Requests are nodes' names.
type Reconciler struct {
	client client.Client
	// live reads what the cache does not show yet.
	live   client.Reader
	drain  drain.Drainer
	events events.EventRecorder
	o      Options
	// reported is when a node's remaining pods were last written, drains how far its drain is, answers the request whose
	// answer is in the conditions, slow which of its drains was told to be slow; by the node's name.
	reported, drains, answers, slow sync.Map
	metrics                         metrics
}

// New makes a reconciler. c's reads may come from a cache; pods are always asked for at the API.
func New(c client.Client, pods kubernetes.Interface, recorder events.EventRecorder, o Options) *Reconciler {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	return &Reconciler{client: c, live: c, drain: drain.Drainer{Client: pods}, events: recorder, o: o,
		metrics: newMetrics()}
}

// SetupWithManager lets mgr run the controller.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	pods, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	r := New(mgr.GetClient(), pods, mgr.GetEventRecorder(name), o)
	r.live = mgr.GetAPIReader()
	if err := r.metrics.register(o.Metrics); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named(name).For(&corev1.Node{}, builder.WithPredicates(concerned())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

// concerned keeps out heartbeats: requests are annotations, a cordon is in the spec, and labels make a control plane.
func concerned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, areNodes := e.ObjectNew.(*corev1.Node)
		return !isNode || !areNodes || before.Spec.Unschedulable != after.Spec.Unschedulable ||
			!maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels)
	}}
}

// Reconcile serves one node. The queue retries failures; a pod that cannot be evicted is none, nor is it one that
// somebody else has changed the node meanwhile.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.serve(ctx, req)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Reconciler) serve(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var n corev1.Node
	if err := r.client.Get(ctx, req.NamespacedName, &n); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	record, err := nodestate.Parse(n.Annotations)
	if err != nil {
		r.o.Log.WithField("node", n.Name).WithError(err).Warn("node has no readable record")
		return reconcile.Result{}, nil // Only a change of the node mends it, and that asks again.
	}
	verb, _, _ := strings.Cut(record.DesiredDrain, "-")
	if verb == nodestate.Drain && undone(&n, record) {
		r.o.Log.WithField("node", n.Name).Info("node was uncordoned after its drain: draining it again")
		record.LastAppliedDrain = ""
	}
	if record.DesiredDrain == "" {
		return reconcile.Result{}, nil
	}
	if record.Drained() {
		return reconcile.Result{}, r.settle(ctx, &n, record)
	}
	if verb == nodestate.Uncordon {
		return reconcile.Result{}, r.uncordon(ctx, &n, record)
	}
	return r.empty(ctx, &n, record)
}

// undone tells that pods may have returned since the node was drained although its agent is not done, for example
// because somebody has uncordoned it while the agent could not pull. One that has what it should have, or never can,
// reboots for nothing.
func undone(n *corev1.Node, record nodestate.Record) bool {
	return record.Drained() && !n.Spec.Unschedulable && !record.Converged() &&
		record.State != nodestate.StateUnreconcilable
}

// empty cordons the node and lets its pods leave.
func (r *Reconciler) empty(ctx context.Context, n *corev1.Node, record nodestate.Record) (reconcile.Result, error) {
	if err := r.cordon(ctx, n, record); err != nil {
		return reconcile.Result{}, err
	}
	only, err := r.onlyControlPlane(ctx, n)
	if err != nil {
		return reconcile.Result{}, err
	}
	if only {
		// There is nowhere to go: an eviction would stop what cannot start elsewhere.
		return reconcile.Result{}, r.finish(ctx, n, record, "the only node of the control plane is not drained")
	}
	step, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	remaining, err := r.drain.Step(step, n.Name)
	if err == nil && len(remaining) == 0 {
		return reconcile.Result{}, r.finish(ctx, n, record, allLeft)
	}
	// What failed is reported and no error: the queue would wait ever longer, and with it the pods that a budget holds.
	after, err := r.waiting(ctx, n, remaining, err)
	return reconcile.Result{RequeueAfter: after}, err
}

// cordon makes the node unschedulable and notes who did it, and since when; somebody else's cordon stays theirs. An
// answer that counts no more goes in the same patch: the agent waits again.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node, record nodestate.Record) error {
	annotations, err := record.Patch(n.Annotations)
	if err != nil {
		return fmt.Errorf("change record of node %s: %w", n.Name, err)
	}
	if _, started := n.Annotations[manifests.AnnotationDrainStarted]; !started {
		now := r.o.Now()
		began := now.UTC().Format(time.RFC3339)
		annotations[manifests.AnnotationDrainStarted] = &began
		// Remembered here and not at the first step's end: a clock that is set while pods are asked to leave would count as
		// their time.
		r.drains.Store(n.Name, progress{began: began, seen: now})
	}
	if !n.Spec.Unschedulable && n.Annotations[manifests.AnnotationCordonedBy] != manifests.CordonedByDayone {
		by := manifests.CordonedByDayone
		annotations[manifests.AnnotationCordonedBy] = &by
	}
	if !n.Spec.Unschedulable || len(annotations) > 0 {
		r.o.Log.WithField("node", n.Name).Info("node cordoned")
		if err := r.patch(ctx, n, annotations, true); err != nil {
			return fmt.Errorf("cordon node %s: %w", n.Name, err)
		}
	}
	return r.report(ctx, n.Name, cordoned()) // also when a process before this one came no further than to the patch
}

// uncordon lets pods return, if this controller stopped them.
func (r *Reconciler) uncordon(ctx context.Context, n *corev1.Node, record nodestate.Record) error {
	ours := n.Annotations[manifests.AnnotationCordonedBy] == manifests.CordonedByDayone
	annotations, err := answer(n, record)
	if err != nil {
		return err
	}
	annotations[manifests.AnnotationCordonedBy], annotations[manifests.AnnotationDrainStarted] = nil, nil
	still := n.Spec.Unschedulable && !ours
	r.forget(n.Name)
	if err := r.patch(ctx, n, annotations, still); err != nil {
		return fmt.Errorf("uncordon node %s: %w", n.Name, err)
	}
	r.o.Log.WithField("node", n.Name).Info("node uncordoned")
	return r.answered(ctx, n, record, uncordoned(still)...)
}

// finish answers the agent that its node is drained.
func (r *Reconciler) finish(ctx context.Context, n *corev1.Node, record nodestate.Record, message string) error {
	annotations, err := answer(n, record)
	if err != nil {
		return err
	}
	// The next drain may come before the node is uncordoned, and has a time of its own.
	annotations[manifests.AnnotationDrainStarted] = nil
	took := r.took(n)
	r.forget(n.Name)
	if err := r.patch(ctx, n, annotations, true); err != nil {
		return fmt.Errorf("answer node %s: %w", n.Name, err)
	}
	r.metrics.took.Observe(took.Seconds())
	r.o.Log.WithField("node", n.Name).Info("node drained")
	return r.answered(ctx, n, record, drained(message)...)
}

// answer changes the record so that it says that the request is done.
func answer(n *corev1.Node, record nodestate.Record) (map[string]*string, error) {
	record.LastAppliedDrain = record.DesiredDrain
	changes, err := record.Patch(n.Annotations)
	if err != nil {
		return nil, fmt.Errorf("change record of node %s: %w", n.Name, err)
	}
	return changes, nil
}

// patch changes annotations and schedulability in one request, which fails when the node has changed meanwhile.
func (r *Reconciler) patch(ctx context.Context, n *corev1.Node, annotations map[string]*string,
	unschedulable bool) error {
	body := map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion, "annotations": annotations}}
	if n.Spec.Unschedulable != unschedulable {
		body["spec"] = map[string]any{"unschedulable": unschedulable}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	return r.client.Patch(ctx, n, client.RawPatch(types.MergePatchType, data))
}

// onlyControlPlane tells whether the cluster has no other control plane than this node.
func (r *Reconciler) onlyControlPlane(ctx context.Context, n *corev1.Node) (bool, error) {
	if !rollout.ControlPlane(n) {
		return false, nil
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Name != n.Name && rollout.ControlPlane(&nodes.Items[i]) {
			return false, nil
		}
	}
	return true, nil
}
