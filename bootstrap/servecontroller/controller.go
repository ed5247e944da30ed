package servecontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/rollout"
)

// controllerName is the controller's, in logs and metrics.
const controllerName = "config-server"

// everything is the one request that there is: it reads all pools together.
const everything = "everything"

// Options of the controller. The zero value serves rendered configs and images as they are.
type Options struct {
	// Log gets what goes wrong; default: nothing.
	Log *logrus.Entry
	// FirstBoot is added to what layered pools' nodes get: the agent and what it needs. nil: the nodes have it. Its
	// PullAuth is what they begin with; SetPullAuth replaces it.
	FirstBoot *firstboot.IgnitionOptions
	// Proxy passes pulls on to registries inside the cluster; ProxyAddress, host:port, is where nodes reach it. nil: nodes
	// pull directly.
	Proxy        *Proxy
	ProxyAddress string
	// Registry is HOST:PORT in the names of the images that the control plane's own registries hold; "": it has none.
	Registry string
	// ProxyCA signed the certificate at ProxyAddress, PEM.
	ProxyCA []byte
}

// Reconciler reads the cluster and tells the server when its answers change. It is the server's source.
type Reconciler struct {
	client  client.Client
	o       Options
	current atomic.Pointer[serve.Rendered]
	memory  rollout.Memory
	// pullAuth is the pull secret of layered pools' nodes; wake requests a reconcile.
	pullAuth atomic.Pointer[[]byte]
	wake     chan event.GenericEvent
	// changed is called when Rendered gives something else.
	changed func()
}

// New makes a reconciler that has nothing to serve yet. c's reads may come from a cache.
func New(c client.Client, o Options) *Reconciler {
	o.Log = cmp.Or(o.Log, report.NoLog())
	r := &Reconciler{client: c, o: o, changed: func() {}, wake: make(chan event.GenericEvent, 1)}
	if o.FirstBoot != nil {
		r.pullAuth.Store(&o.FirstBoot.PullAuth)
	}
	r.current.Store(&serve.Rendered{Err: errUnread})
	return r
}

// errUnread is what is served before the first reconcile. 404 would make Ignition give up.
var errUnread = errors.New("the cluster has not been read yet")

// Ready fails until the cluster has been read once: a probe of the server's readiness.
func (r *Reconciler) Ready(*http.Request) error { return r.Rendered().Err }

// Rendered is what is served now: serve.Source.
func (r *Reconciler) Rendered() serve.Rendered { return *r.current.Load() }

// OnChange sets what is called after each change, for example Server.Reload. It must be set before the manager starts.
func (r *Reconciler) OnChange(f func()) { r.changed = f }

// SetPullAuth replaces the pull secret of layered pools' nodes and requests a reconcile.
func (r *Reconciler) SetPullAuth(raw []byte) {
	r.pullAuth.Store(&raw)
	select {
	case r.wake <- event.GenericEvent{Object: &corev1.Secret{}}:
	default: // a reconcile is requested already, and it comes after this
	}
}

// SetupWithManager lets mgr run the controller in every copy of the program: each serves.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: everything}}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(controllerName).WithOptions(options())
	for _, o := range []client.Object{&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfig{}, &mcfgv1.ControllerConfig{},
		&mcfgv1.MachineOSConfig{}, &mcfgv1.MachineOSBuild{}, &configv1.APIServer{}} {
		b = b.Watches(o, all)
	}
	b = b.Watches(&corev1.Node{}, all, builder.WithPredicates(recordChanged())).
		WatchesRawSource(source.Channel(r.wake, all))
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up %s: %w", controllerName, err)
	}
	return nil
}

// recordChanged keeps out the heartbeats of thousands of nodes: what a node has is in its annotations, which pool is
// its own in its labels.
func recordChanged() predicate.Predicate {
	return predicate.Or(predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
}

// Reconcile reads all pools and swaps what is served.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	fresh, err := r.read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if same(r.current.Load(), fresh) {
		return reconcile.Result{}, nil
	}
	r.current.Store(fresh)
	r.changed()
	return reconcile.Result{}, nil
}

func (r *Reconciler) read(ctx context.Context) (*serve.Rendered, error) {
	var pools mcfgv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var controllers mcfgv1.ControllerConfigList
	var servers configv1.APIServerList
	for _, list := range []client.ObjectList{&pools, &nodes, &configs, &builds, &controllers, &servers} {
		// A cluster may lack the kinds of layering, or OpenShift's settings.
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	c := &rollout.Cluster{Memory: &r.memory, Pools: pools.Items, Nodes: rollout.Pointers(nodes.Items),
		Configs: configs.Items, Builds: builds.Items}
	out := &serve.Rendered{Pools: map[string]serve.RenderedPool{}}
	if len(controllers.Items) > 0 {
		out.KubeletCA, out.CloudCA = controllers.Items[0].Spec.KubeAPIServerServingCAData,
			controllers.Items[0].Spec.CloudProviderCAData
		if _, standalone := controllers.Items[0].Annotations[manifests.AnnotationStandalone]; standalone {
			out.KubeletCA = nil // it only fills a place that the API demands
		}
	}
	for i := range servers.Items {
		if servers.Items[i].Name == "cluster" {
			out.TLS = servers.Items[i].Spec.TLSSecurityProfile
		}
	}
	registry := r.findRegistry(nodes.Items, controllers.Items)
	var errs []error
	for i := range pools.Items {
		look := c.View(pools.Items[i].Name)
		if look == nil {
			continue
		}
		served, err := r.pool(ctx, c, look, registry)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Pools[look.Object.Name] = served
	}
	return out, errors.Join(errs...)
}
