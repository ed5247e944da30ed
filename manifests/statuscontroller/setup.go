package statuscontroller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// Options of the controller. Namespace, Mode and Version are required.
type Options struct {
	// Namespace is the installation's.
	Namespace string
	// Mode is the installation's.
	Mode cluster.Mode
	// Version is what the ClusterOperator says as that of the operator.
	Version string
	// Waiting says that the other controllers wait because the Machine Config Operator runs, in mode full.
	Waiting bool
	// Now is the clock of conditions; default time.Now.
	Now func() time.Time
	// Log takes a line for each change; default none.
	Log *logrus.Entry
}

// operators is the namespace in which the Machine Config Operator runs or would.
func (o Options) operators() string {
	if o.Mode == cluster.Advisor {
		return cluster.DefaultNamespace
	}
	return o.Namespace
}

// name is the controller's and the key of its only request.
const name = "dayone-status"

// SetupWithManager adds the controller, and in mode full the guard. They have a cache of their own, since they look at
// a few objects of kinds that other controllers look at differently.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, report.NoLog())
	k := kindsOf(mgr.GetRESTMapper(), o.Mode)
	watched := o.watched(k)
	own, err := cache.New(mgr.GetConfig(), cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper(), ByObject: watched, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return fmt.Errorf("set up the cache of %s: %w", name, err)
	}
	if err := mgr.Add(own); err != nil {
		return fmt.Errorf("add the cache of %s: %w", name, err)
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	always := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
	// The first look comes also where nothing is that could cause one.
	once := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(request)
		return nil
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(name).WatchesRawSource(once)
	for kind := range watched {
		b = b.WatchesRawSource(source.Kind(own, kind, always))
	}
	if err := b.Complete(&reconciler{client: mgr.GetClient(), cache: own, kinds: k, o: o}); err != nil {
		return fmt.Errorf("start controller of %s: %w", name, err)
	}
	if o.Mode != cluster.Full {
		return nil
	}
	g := &guard{cache: own, waiting: o.Waiting, changed: make(chan []string, 1)}
	everyCopy := false
	err = ctrl.NewControllerManagedBy(mgr).Named("dayone-guard").
		WatchesRawSource(source.Kind[client.Object](own, &appsv1.Deployment{}, always)).
		WatchesRawSource(source.Kind[client.Object](own, &appsv1.DaemonSet{}, always)).
		WithOptions(controller.Options{NeedLeaderElection: &everyCopy}).Complete(g)
	if err != nil {
		return fmt.Errorf("start the guard: %w", err)
	}
	return mgr.Add(g)
}

// kinds says which of those that not every cluster has are there and matter.
type kinds struct{ operators, versions bool }

func kindsOf(mapper meta.RESTMapper, mode cluster.Mode) kinds {
	has := func(kind string) bool {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: configv1.GroupName, Kind: kind})
		return err == nil
	}
	return kinds{operators: has("ClusterOperator"), versions: mode == cluster.Full && has("ClusterVersion")}
}

// watched are the objects that matter in the mode; the others need no right.
func (o Options) watched(k kinds) map[client.Object]cache.ByObject {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	ours := cache.Config{LabelSelector: labels.SelectorFromSet(labels.Set{cluster.LabelManagedBy: cluster.ManagedBy})}
	list := map[client.Object]cache.ByObject{
		&appsv1.Deployment{}: {Namespaces: map[string]cache.Config{o.operators(): {}, o.Namespace: {}}},
		&corev1.ConfigMap{}:  {Namespaces: map[string]cache.Config{o.Namespace: ours}},
	}
	if o.Mode == cluster.Full {
		list[&appsv1.DaemonSet{}] = cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: {}}}
		list[&mcfgv1.MachineConfigPool{}] = cache.ByObject{}
		list[&mcfgv1.MachineOSConfig{}] = cache.ByObject{}
		list[&operatorv1.MachineConfiguration{}] = named(cluster.MachineConfiguration)
	}
	if k.versions {
		list[&configv1.ClusterVersion{}] = named(cluster.ClusterVersionName)
	}
	if k.operators {
		list[&configv1.ClusterOperator{}] = named(cluster.ManagedBy)
	}
	return list
}
