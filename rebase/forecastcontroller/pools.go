package forecastcontroller

import (
	"context"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

const (
	// keyAnnounced of a pool's ConfigMap is the target of which an event was sent last.
	keyAnnounced = "announced"
	// unmanagedName is the ConfigMap of the nodes that no pool takes.
	unmanagedName = "dayone-unmanaged"
	// masterPool is the one whose node with the operator goes last. Source: MCO.
	masterPool = "master"
)

// unmanaged asks for the nodes that no pool takes. No pool has a namespace.
//
//nolint:gochecknoglobals // a constant in all but type
var unmanaged = client.ObjectKey{Namespace: "-", Name: "unmanaged"}

// pools publishes what MCO does to each pool's nodes.
type pools struct {
	cache   client.Client
	live    client.Client
	view    *fleet.View
	store   *store
	configs *configs
	events  events.EventRecorder
	metrics *metrics
	o       Options
	// swept is when ConfigMaps of pools that have gone were looked for. Only the one request unmanaged uses it.
	swept time.Time
}

// Reconcile publishes the forecast of the pool that the request names.
func (r *pools) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c, err := r.view.Cluster(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	c.Actor = disruption.ActorMCO
	if req.NamespacedName == unmanaged {
		return ctrl.Result{RequeueAfter: mend}, r.rest(ctx, c)
	}
	object := &opv1.MachineConfiguration{}
	err = r.cache.Get(ctx, client.ObjectKey{Name: cluster.MachineConfiguration}, object)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil {
		object = nil
	}
	settings, err := disruption.ReadFor(disruption.ActorMCO, object)
	if err != nil {
		return ctrl.Result{}, err
	}
	topology, err := fleet.Topology(ctx, r.live)
	if err != nil {
		return ctrl.Result{}, err
	}
	settings.Undrained = disruption.Undrained(topology)
	pool := c.View(req.Name)
	if pool == nil {
		r.metrics.without(req.Name)
		return ctrl.Result{}, r.store.remove(ctx, forecast.ConfigMapName(req.Name))
	}
	in := forecast.Input{Source: cluster.Controller, At: r.o.Now(), Cluster: c, Settings: settings, Unruled: object == nil,
		Blocking: func(nodes map[string]bool) []string {
			names, err := fleet.Blocking(ctx, r.live, nodes)
			if err != nil {
				r.o.Log.WithError(err).Warn("cannot tell which PodDisruptionBudgets hold drains up")
			}
			return names
		}}
	if in.Configs, err = r.configs.of(ctx, configsOf(pool)); err != nil {
		return ctrl.Result{}, err
	}
	if req.Name == masterPool {
		c.Deferred = fleet.OperatorNode(ctx, r.live)
	}
	return r.publish(ctx, in, req.Name)
}

// configsOf are the rendered configs that the pool's nodes have and go to.
func configsOf(pool *rollout.PoolView) map[string]bool {
	names := map[string]bool{pool.Object.Spec.Configuration.Name: true, pool.Object.Status.Configuration.Name: true}
	for _, has := range pool.NodeStates() {
		names[has.Config] = true
	}
	delete(names, "")
	return names
}

func (r *pools) publish(ctx context.Context, in forecast.Input, name string) (ctrl.Result, error) {
	p, unknown := forecast.OfPool(in, name)
	draining := p.Draining()
	held, err := fleet.HeldBy(ctx, r.live, draining)
	if err != nil {
		r.o.Log.WithError(err).Warn("cannot tell what holds drains up")
	}
	is, err := p.Publish(disruption.ActorMCO, unknown, held)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.metrics.of(name, is)
	at := forecast.ConfigMapName(name)
	before, err := r.store.read(ctx, at, in.At)
	if err != nil {
		return ctrl.Result{}, err
	}
	is.Data[keyAnnounced] = before[keyAnnounced]
	announce := is.Level >= disruption.LevelDrain && before[keyAnnounced] != is.Target.Config
	if announce {
		is.Data[keyAnnounced] = is.Target.Config
	}
	changed, err := r.store.write(ctx, at, is.Data, in.At)
	if err != nil {
		return ctrl.Result{}, err
	}
	if announce {
		r.events.Eventf(objectOf(in.Cluster, name), nil, corev1.EventTypeNormal, "ForecastPublished", "Forecast", "%s",
			is.Sentence)
	}
	if changed {
		r.o.Log.WithField("pool", name).WithField("level", is.Level.String()).Info("forecast published")
	}
	again := mend
	if is.Level >= disruption.LevelDrain || len(draining) > 0 {
		again = recheck
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

func objectOf(c *rollout.Cluster, name string) *mcfgv1.MachineConfigPool {
	for i := range c.Pools {
		if c.Pools[i].Name == name {
			return &c.Pools[i]
		}
	}
	return nil
}

// rest publishes the nodes that no pool takes, and removes what was published of pools that have gone.
func (r *pools) rest(ctx context.Context, c *rollout.Cluster) error {
	names := map[string]bool{}
	for i := range c.Pools {
		names[forecast.ConfigMapName(c.Pools[i].Name)] = true
	}
	if now := r.o.Now(); now.Sub(r.swept) >= mend {
		if err := r.store.keep(ctx, names); err != nil {
			return err
		}
		r.swept = now
	}
	data, n, err := forecast.Unmanaged(c)
	if err != nil {
		return err
	}
	r.metrics.without("")
	if n == 0 {
		have, err := r.store.read(ctx, unmanagedName, r.o.Now())
		if err == nil && have != nil {
			err = r.store.remove(ctx, unmanagedName)
		}
		return err
	}
	r.metrics.waiting.WithLabelValues("", "Unmanaged").Set(float64(n))
	_, err = r.store.write(ctx, unmanagedName, data, r.o.Now())
	return err
}
