package forecastcontroller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/fleet"
)

// name is the controllers', in logs and as owner of ConfigMaps' fields.
const name = "dayone-forecast"

// renderedPrefix begins the names of rendered configs. Source: MCO.
const renderedPrefix = "rendered-"

// Bounds of time.
const (
	// gatherPools and gatherNodes are for how long changes are gathered before a forecast is made again. Nodes change
	// much while a fleet moves.
	gatherPools = 200 * time.Millisecond
	gatherNodes = 2 * time.Second
	// recheck is how often is looked again at what is not watched: PodDisruptionBudgets while nodes drain or will.
	recheck = time.Minute
	// mend is how often ConfigMaps are compared with what they should have: they are not watched.
	mend = 10 * time.Minute
	// retryFirst and retryLast are how soon what failed is tried again: an API server that refuses for a minute finds the
	// forecast outdated for no more than that much longer.
	retryFirst = 100 * time.Millisecond
	retryLast  = 15 * time.Second
)

// Options of the controllers. Namespace is required.
type Options struct {
	// Namespace is where is published.
	Namespace string
	// Log gets what is published; default: nothing.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Metrics gets the metrics; default: none.
	Metrics prometheus.Registerer
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return o
}

// CacheOptions leave out of what is watched what no forecast reads: of Nodes all but their labels, their record and
// their health, of MachineConfigs the contents. Rendered configs are read when they are needed.
func CacheOptions() map[client.Object]cache.ByObject {
	transform := func(f func(any)) cache.ByObject {
		return cache.ByObject{Transform: func(o any) (any, error) {
			f(o)
			return o, nil
		}}
	}
	return map[client.Object]cache.ByObject{
		// The right is bound to its name.
		&opv1.MachineConfiguration{}: {Field: fields.OneTermEqualSelector("metadata.name", cluster.MachineConfiguration)},
		&corev1.Node{}: transform(func(o any) {
			if n, ok := o.(*corev1.Node); ok {
				conditions := n.Status.Conditions
				for i := range conditions {
					conditions[i].LastHeartbeatTime.Reset()
				}
				n.ManagedFields, n.Status = nil, corev1.NodeStatus{Conditions: conditions}
				n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable}
			}
		}),
		&mcfgv1.MachineConfigNode{}: transform(func(o any) {
			if n, ok := o.(*mcfgv1.MachineConfigNode); ok {
				n.ManagedFields, n.Status = nil, mcfgv1.MachineConfigNodeStatus{Conditions: n.Status.Conditions}
			}
		}),
		&mcfgv1.MachineConfig{}: transform(func(o any) {
			if mc, ok := o.(*mcfgv1.MachineConfig); ok {
				contents := mc.Spec.Config.Raw
				mc.ManagedFields, mc.Spec = nil, mcfgv1.MachineConfigSpec{}
				if !strings.HasPrefix(mc.Name, renderedPrefix) {
					mc.Spec.Config.Raw = outline(contents)
				}
			}
		}),
	}
}

// outline is Ignition without contents: the paths and the units that it defines.
func outline(contents []byte) []byte {
	if len(contents) == 0 {
		return nil
	}
	config, err := machineconfig.Parse(contents)
	if err != nil {
		return contents // whoever reads it says what is wrong with it
	}
	type named struct {
		Path string `json:"path,omitempty"`
		Name string `json:"name,omitempty"`
	}
	files, units := []named{}, []named{}
	for _, f := range config.Storage.Files {
		files = append(files, named{Path: f.Path})
	}
	for _, u := range config.Systemd.Units {
		units = append(units, named{Name: u.Name})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": machineconfig.Version},
		"storage": map[string]any{"files": files}, "systemd": map[string]any{"units": units}})
	if err != nil {
		return nil
	}
	return raw
}

// SetupWithManager lets mgr run the controllers. mgr's cache must have CacheOptions.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	o = o.withDefaults()
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	view, err := fleet.Cached(mgr.GetCache())
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	store := newStore(live, o.Namespace)
	events := mgr.GetEventRecorder(name)
	pools := &pools{cache: mgr.GetClient(), live: live, view: view, store: store, events: events, metrics: m, o: o,
		configs: newConfigs(live)}
	if err := setupPools(mgr, pools); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	policies := &policies{cache: mgr.GetClient(), live: live, store: store, events: events, metrics: m, o: o}
	if err := setupPolicies(mgr, policies); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func options() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
		retryFirst, retryLast)}
}

func setupPools(mgr ctrl.Manager, r *pools) error {
	soon, later := r.afterChange(gatherPools), r.afterChange(gatherNodes)
	return ctrl.NewControllerManagedBy(mgr).Named("forecast-pools").WithOptions(options()).
		Watches(&mcfgv1.MachineConfigPool{}, soon, builder.WithPredicates(poolChanged())).
		Watches(&opv1.MachineConfiguration{}, soon).
		Watches(&mcfgv1.MachineOSConfig{}, soon).
		Watches(&mcfgv1.MachineOSBuild{}, soon).
		Watches(&corev1.Node{}, later, builder.WithPredicates(nodeChanged())).
		Watches(&mcfgv1.MachineConfigNode{}, later, builder.WithPredicates(recordChanged())).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			q.Add(reconcile.Request{NamespacedName: unmanaged})
			return nil
		})).
		Complete(r)
}

// afterChange asks for the forecasts of all pools, and of the nodes that are in none, some time after a change.
func (r *pools) afterChange(wait time.Duration) handler.EventHandler {
	add := func(ctx context.Context, gone client.Object, q queue) {
		var list mcfgv1.MachineConfigPoolList
		if err := r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			r.o.Log.WithError(err).Warn("cannot list pools")
		}
		for i := range list.Items {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, wait)
		}
		if p, is := gone.(*mcfgv1.MachineConfigPool); is {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}, wait)
		}
		q.AddAfter(reconcile.Request{NamespacedName: unmanaged}, wait)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { add(ctx, nil, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { add(ctx, nil, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// poolChanged keeps out counts of a status, which are the nodes' own anyway.
func poolChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, old := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		is, now := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return !old || !now || was.Generation != is.Generation || !maps.Equal(was.Labels, is.Labels) ||
			was.Status.Configuration.Name != is.Status.Configuration.Name ||
			!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
	}}
}

// nodeChanged keeps out heartbeats.
func nodeChanged() predicate.Predicate {
	health := func(n *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
		out := map[corev1.NodeConditionType]corev1.ConditionStatus{}
		for _, c := range n.Status.Conditions {
			out[c.Type] = c.Status
		}
		return out
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, old := e.ObjectOld.(*corev1.Node)
		is, now := e.ObjectNew.(*corev1.Node)
		return !old || !now || !maps.Equal(was.Annotations, is.Annotations) || !maps.Equal(was.Labels, is.Labels) ||
			was.Spec.Unschedulable != is.Spec.Unschedulable || !maps.Equal(health(was), health(is))
	}}
}

// recordChanged is for what drains say.
func recordChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, old := e.ObjectOld.(*mcfgv1.MachineConfigNode)
		is, now := e.ObjectNew.(*mcfgv1.MachineConfigNode)
		return !old || !now || !equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
	}}
}
