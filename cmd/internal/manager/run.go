package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/cmd/internal/connect"
)

// Program is what one binary's controllers are. Name and Add are required.
type Program struct {
	// Name is the program's; its lease bears it, too.
	Name string
	// Version is printed at the start and sent as the clients' user agent.
	Version string
	// Cache narrows what is watched; nil: every object of each kind that is read. Managed fields are never kept.
	Cache func(o Options) cache.Options
	// Live are kinds that are read from the API at every look instead of watched, for example Secrets.
	Live []client.Object
	// Add registers the program's controllers at m.
	Add func(ctx context.Context, m manager.Manager, o Options, log *logrus.Entry) error
}

// NewCommand is the program's sub-command that runs its controllers.
func NewCommand(p Program) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "start",
		Short: "Run the controllers until the process is stopped",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			log, err := NewLog(c.ErrOrStderr(), p.Name, o)
			if err != nil {
				return err
			}
			cfg, err := connect.RESTConfig(o.Kubeconfig, "")
			if err != nil {
				return err
			}
			return Run(c.Context(), p, o, cfg, log)
		},
	}
	o.AddFlags(c.Flags())
	return c
}

// Run works until ctx ends, which is no error, or until the lease is lost or etcd was restored from a backup, which is
// one: the process should end and be started again. It releases the lease at the end, so that another copy continues at
// once.
func Run(ctx context.Context, p Program, o Options, cfg *rest.Config, log *logrus.Entry) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	UseLog(log)
	m, err := New(p, o, cfg, log)
	if err != nil {
		return err
	}
	if err := p.Add(ctx, m, o, log); err != nil {
		return fmt.Errorf("set up the controllers of %s: %w", p.Name, err)
	}
	log.WithFields(logrus.Fields{"version": p.Version, "namespace": o.Namespace, "server": cfg.Host}).Info("started")
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run %s: %w", p.Name, err)
	}
	log.Info("stopped")
	return nil
}

// New is a manager with o's settings and without controllers. It ends with an error when etcd was restored.
func New(p Program, o Options, cfg *rest.Config, log *logrus.Entry) (manager.Manager, error) {
	o = o.withDefaults()
	scheme, err := connect.Scheme()
	if err != nil {
		return nil, err
	}
	var watched cache.Options
	if p.Cache != nil {
		watched = p.Cache(o)
	}
	if watched.DefaultTransform == nil {
		watched.DefaultTransform = cache.TransformStripManagedFields()
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = p.Name + "/" + p.Version
	cfg.QPS = unthrottled
	renew := time.Duration(float64(o.LeaseDuration) / renewPart)
	retry := time.Duration(float64(o.LeaseDuration) / retryPart)
	m, err := manager.New(cfg, manager.Options{
		Scheme: scheme, Cache: watched, Logger: logrOf(log),
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: p.Live}},
		LeaderElection:                !o.NoLeaderElection,
		LeaderElectionID:              p.Name,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics:                metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.ProbeAddress,
		Controller:             config.Controller{UsePriorityQueue: new(priorityQueue)},
	})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	if err := errors.Join(m.AddHealthzCheck("alive", healthz.Ping),
		m.AddReadyzCheck("caches", synced(m.GetCache())),
		m.Add(&restoreWatch{cache: m.GetCache(), api: m.GetAPIReader(), every: restoreInterval, log: log})); err != nil {
		return nil, fmt.Errorf("set up probes: %w", err)
	}
	return m, nil
}

// synced is ready when every kind that is watched has been read once.
func synced(c cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the watched kinds have not all been read yet")
		}
		return nil
	}
}
