package registrycontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/wantedimages"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// name is the controller's, in logs and as owner of fields.
	name = "dayone-registry"
	// renew is how often the list is issued anew although nothing has changed: registries drop nothing by a list that is
	// older than an hour.
	renew = 10 * time.Minute
	// retryMin and retryMax bound the pause after a failure, which doubles: what an administrator has mended is seen soon.
	retryMin = 10 * time.Millisecond
	retryMax = time.Minute
)

// Options of the controller. Registry and Namespace are required.
type Options struct {
	// Registry is HOST[:PORT] in the names of the cluster's own images.
	Registry string
	// Namespace has the ConfigMap with the list.
	Namespace string
	// Log takes a line for each change; default none.
	Log *logrus.Entry
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Metrics takes the collectors; default none.
	Metrics prometheus.Registerer
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = report.NoLog()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// reconciler has one request only: the list is the cluster's.
type reconciler struct {
	client  client.Client
	live    client.Reader
	metrics *metrics
	o       Options
}

// SetupWithManager lets mgr run the controller.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.Registry == "" || o.Namespace == "" {
		return errors.New("set up the registries' controller: Registry and Namespace are required")
	}
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), metrics: newMetrics(), o: o.withDefaults()}
	if o.Metrics != nil {
		if err := o.Metrics.Register(r.metrics); err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
	}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax)})
	for _, kind := range []client.Object{&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfig{}, &mcfgv1.MachineOSConfig{},
		&mcfgv1.MachineOSBuild{}, &mcfgv1.ControllerConfig{}} {
		b = b.Watches(kind, one)
	}
	if err := b.Watches(&corev1.Node{}, one, builder.WithPredicates(nodeChanged())).Complete(r); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

// nodeChanged leaves out heartbeats.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, also := e.ObjectNew.(*corev1.Node)
		return !ok || !also || registrystatus.NodeReady(before) != registrystatus.NodeReady(after) ||
			!reflect.DeepEqual(before.Status.Addresses, after.Status.Addresses) ||
			!reflect.DeepEqual(before.Labels, after.Labels) ||
			!reflect.DeepEqual(before.Annotations, after.Annotations)
	}}
}

// Reconcile publishes what is wanted and judges what nodes report.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	v, err := r.view(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	have, err := r.read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if v.Listed, err = r.listed(ctx); err != nil {
		return reconcile.Result{}, err
	}
	images, unknown := wantedimages.Of(r.o.Registry, v)
	list := wanted.New(r.o.Now(), images)
	if age := r.o.Now().Sub(have.list.Issued); reflect.DeepEqual(have.list.Images, list.Images) && age.Abs() < renew {
		list.Issued = have.list.Issued
	}
	members := registrystatus.Members(v.Nodes)
	addresses, err := rollout.RegistryPeers(r.o.Registry, v.Nodes).Encode()
	if err != nil {
		return reconcile.Result{}, err
	}
	users, current, more, accountsErr := r.accounts(ctx, v)
	if current.Type == "" { // the list does not wait for accounts, and registries keep those that they have
		users, current = have.users, metav1.Condition{Type: registrystatus.ConditionAccounts, Status: metav1.ConditionFalse,
			Reason: "Failed", Message: accountsErr.Error()}
	}
	shared, sharedErr := share(ctx, r, v, members)
	accountsErr = errors.Join(accountsErr, sharedErr)
	next := published{list: list, peers: string(addresses), users: users, ca: have.ca,
		conditions: append(append(judge(list, members, unknown), current), shared.conditions...)}
	if shared.ca != nil {
		if next.ca, err = shared.ca.Encode(); err != nil {
			return reconcile.Result{}, err
		}
	}
	r.metrics.set(list, members, len(unknown), shared.ca)
	if err := r.write(ctx, have, next); err != nil {
		return reconcile.Result{}, errors.Join(err, accountsErr)
	}
	if accountsErr != nil {
		return reconcile.Result{}, accountsErr
	}
	if more {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{RequeueAfter: cmp.Or(shared.again, renew/2)}, nil
}

// view reads from the cache and changes nothing.
func (r *reconciler) view(ctx context.Context) (wantedimages.View, error) {
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	var layering mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var controllers mcfgv1.ControllerConfigList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&pools, &configs, &layering, &builds, &controllers, &nodes} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return wantedimages.View{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return wantedimages.View{Pools: pools.Items, MachineConfigs: configs.Items, MachineOSConfigs: layering.Items,
		MachineOSBuilds: builds.Items, ControllerConfigs: controllers.Items, Nodes: nodes.Items}, nil
}
