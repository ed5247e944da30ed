package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"dayone.dev/dayone/cmd/internal/verbosity"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/hostjournal"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/pinnedimages"
	"dayone.dev/dayone/registry/forwarder"
)

const (
	// defaultListen is reached from the node only: liveness probes are asked there, and metrics name images.
	defaultListen = "127.0.0.1:8799"
	// defaultKubelet is kubelet's own default.
	defaultKubelet = "http://127.0.0.1:10248/healthz"
	// readHeaderLimit and shutdownLimit bound what a client of it can hold up.
	readHeaderLimit = 10 * time.Second
	shutdownLimit   = 2 * time.Second
	// autoDeployer finds out what manages the host.
	autoDeployer = "auto"
	// defaultAheadRate leaves the better part of a common network card, and of a disk, to pods; in MB a second.
	defaultAheadRate = 25
	mega             = 1_000_000
	// kubeconfigPoll is how often a node looks whether it has joined.
	kubeconfigPoll = 5 * time.Second
)

// startOptions are the flags of start.
type startOptions struct {
	kubeconfig string
	node       string
	root       string
	deployer   string
	listen     string
	kubelet    string
	logLevel   string
	repair     bool
	aheadRate  int64
}

func newStart() *cobra.Command {
	var o startOptions
	c := &cobra.Command{
		Use:   "start",
		Short: "Keep this node at the config and image that its Node object names",
		Long: "The agent on a node, under systemd or as a DaemonSet's pod. It continues where it was killed, finishes\n" +
			"what it has begun while the API is away, and reports what it does in the annotations of its Node object.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"kubeconfig file on the host, for example the kubelet's; default: the pod's service account")
	f.StringVar(&o.node, "node", "", "name of this node's object; default: NODE_NAME, then the host's name")
	f.StringVar(&o.root, "root", "/",
		"where the host's / is; in a container, which must have the host's PID namespace, a mount such as /rootfs")
	f.StringVar(&o.deployer, "deployer", autoDeployer, "auto, ostree, bootc or rpm-ostree")
	f.StringVar(&o.listen, "listen", defaultListen, "host:port of /healthz, /readyz and /metrics; 0: none")
	f.StringVar(&o.kubelet, "kubelet-healthz", defaultKubelet,
		"where kubelet says whether it is well, for mcd_kubelet_state; empty: it is not asked")
	f.StringVar(&o.logLevel, "log-level", logrus.InfoLevel.String(), "debug, info, warning or error")
	f.BoolVar(&o.repair, "repair-drift", false,
		"put files, units and SSH keys back that are unlike the node's config, instead of reporting them only")
	f.Int64Var(&o.aheadRate, "fetch-ahead-rate", defaultAheadRate,
		"MB a second of an image that is fetched before the node is told to go to it; 0: no bound")
	return c
}

func (o startOptions) run(c *cobra.Command) error {
	log, err := o.log(c)
	if err != nil {
		return err
	}
	account, err := enterHost(o.root)
	if err != nil {
		return err
	}
	if o.node, err = nodeName(o.node); err != nil {
		return err
	}
	kind := deploy.Kind(o.deployer)
	if o.deployer == autoDeployer {
		kind = ""
	}
	choice, err := host.Choose(c.Context(), "/", kind, log)
	if err != nil {
		return err
	}
	log = log.WithField("node", o.node)
	log.WithFields(logrus.Fields{"deployer": choice.Kind, "reason": choice.Reason}).Info("deployer chosen")
	forward, err := newForwarder(o.node, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(c.Context())
	g.Go(func() error { return forward.Run(ctx) }) // it serves pulls before there is a kubelet
	g.Go(func() error {
		if err := o.kubeconfigThere(ctx, log); err != nil {
			return err
		}
		return o.runAgent(ctx, account, choice.Deployer, forward, log)
	})
	return g.Wait()
}

// kubeconfigThere waits for the kubelet's kubeconfig, which a new node gets when it has joined. It ends with ctx.
func (o startOptions) kubeconfigThere(ctx context.Context, log *logrus.Entry) error {
	tick := time.NewTicker(kubeconfigPoll)
	defer tick.Stop()
	for said := false; o.kubeconfig != ""; said = true {
		_, err := os.Stat(o.kubeconfig)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !said {
			log.WithField("kubeconfig", o.kubeconfig).Info("waiting for the kubeconfig")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

func (o startOptions) runAgent(ctx context.Context, account string, d deploy.Deployer, forward *forwarder.Forwarder,
	log *logrus.Entry) error {
	if ctx.Err() != nil {
		return nil
	}
	cfg, err := access(o.kubeconfig, account)
	if err != nil {
		return err
	}
	api, err := kubeapi.New(cfg, o.node, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	agent, err := daemon.New(daemon.Options{Node: o.node, Cluster: api, Wake: api.Wake(ctx), Deployer: d,
		Pinner:         pinnedimages.Store{Root: "/", Reload: daemon.ReloadCRIO, Log: log},
		KubeletHealthz: o.kubelet, HostJournal: hostjournal.Journal{},
		Log: log, Verbosity: verbosity.Of(log), RepairDrift: o.repair, PrefetchBytesPerSecond: o.aheadRate * mega,
		Verify:      func(ctx context.Context, i deploy.Image) error { return pull.Verify(ctx, "/", i) },
		CheckStaged: func(ctx context.Context) error { return host.CheckStaged(ctx, "/", d) }})
	if err != nil {
		return err
	}
	if o.listen != "0" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
		if err != nil {
			return fmt.Errorf("listen for probes (--listen gives another address, 0 none): %w", err)
		}
		g.Go(func() error { return serve(ctx, l, withForwarder(agent.Handler(), forward)) })
	}
	g.Go(func() error { return agent.Run(ctx) })
	return g.Wait()
}

func (o startOptions) log(c *cobra.Command) (*logrus.Entry, error) {
	level, err := logrus.ParseLevel(o.logLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	l := logrus.New()
	l.SetOutput(c.ErrOrStderr())
	l.SetLevel(level)
	l.SetFormatter(&logrus.JSONFormatter{})
	return l.WithField("program", "dayone-daemon"), nil
}

// nodeName is the flag's, the environment's, or the host's name, as kubelet has it.
func nodeName(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this node's name (--node gives it): %w", err)
	}
	return name, nil
}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: readHeaderLimit}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		_ = s.Shutdown(ctx) // the process ends anyway
	})
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}
