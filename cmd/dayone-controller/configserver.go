package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/bootstrap/servecontroller"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/firstboot"
)

// configServer are the flags of dayone-controller config-server.
type configServer struct {
	version        string
	listen, url    string
	hosts          []string
	kubeconfig     string
	apiServer      string
	daemon         string
	pullSecrets    []string
	registryCAFile string
	registry       string
	o              manager.Options
}

// newConfigServer is the command that serves new nodes.
func newConfigServer(version string) *cobra.Command {
	s := &configServer{version: version}
	c := &cobra.Command{
		Use:   "config-server",
		Short: "Serve new nodes their pool's config and image, as Ignition",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return s.run(c) },
	}
	f := c.Flags()
	s.o.AddFlags(f)
	f.StringVar(&s.listen, "listen", ":22623", "host:port to serve HTTPS on")
	f.StringVar(&s.url, "url", "",
		"address at which new nodes reach this server, such as https://api-int.example.com:22623; default: the first "+
			"--host with the port of --listen")
	f.StringSliceVar(&s.hosts, "host", nil, "names and addresses of the certificate (repeatable); at least one")
	f.StringVar(&s.kubeconfig, "bootstrap-kubeconfig", "",
		"kubeconfig of your own with which new nodes join; empty, or no such file: one is made, with a token for one "+
			"day that may only ask for a certificate")
	f.StringVar(&s.apiServer, "api-server-url", "",
		"where new nodes reach the API server; default: what the ControllerConfig or kube-public/cluster-info says")
	f.StringVar(&s.daemon, "daemon", "",
		"the node agent's program, which new nodes fetch from here; empty: their disk image has it")
	f.StringSliceVar(&s.pullSecrets, "pull-secret", nil,
		"file with the pull secret of new nodes, also used at registries inside the cluster (repeatable: of one registry "+
			"the first one counts); no such file: none")
	f.StringVar(&s.registry, "cluster-registry", "",
		"HOST:PORT in the names of the images that the control plane's own registries hold: new nodes get their addresses")
	f.StringVar(&s.registryCAFile, "registry-ca", "", "authorities of these registries in PEM, beside the system's")
	return c
}

func (s *configServer) run(c *cobra.Command) error {
	if len(s.hosts) == 0 {
		return fmt.Errorf("--host is needed: a name or an address at which new nodes reach this server")
	}
	if err := s.o.Validate(); err != nil {
		return err
	}
	log, err := manager.NewLog(c.ErrOrStderr(), cluster.ConfigServer, s.o)
	if err != nil {
		return err
	}
	cfg, err := connect.RESTConfig(s.o.Kubeconfig, "")
	if err != nil {
		return err
	}
	return s.serve(c.Context(), cfg, log)
}

func (s *configServer) serve(ctx context.Context, cfg *rest.Config, log *logrus.Entry) error {
	s.o.NoLeaderElection = true // every copy answers
	manager.UseLog(log)
	p := manager.Program{Name: cluster.ConfigServer, Version: s.version, Live: []client.Object{&corev1.Secret{}}}
	m, err := manager.New(p, s.o, cfg, log)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dayone-config-server-")
	if err != nil {
		return fmt.Errorf("make directory for the certificate: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it lies in memory and goes with the container
	address, url := s.address()
	id, err := loadIdentity(ctx, m.GetAPIReader(), m.GetClient(), s.o.Namespace, url, dir)
	if err != nil {
		return err
	}
	if err := id.certify(s.hosts); err != nil {
		return err
	}
	o, err := s.options(id, address, url)
	if err != nil {
		return err
	}
	o.Log, o.Proxy.Log = log, log
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return fmt.Errorf("read the API server's CA: %w", err)
	}
	nodes := &join{reader: m.GetAPIReader(), writer: m.GetClient(), log: log, namespace: s.o.Namespace,
		given: s.kubeconfig, file: filepath.Join(dir, "kubeconfig"),
		server: s.apiServer, ca: cfg.CAData, now: time.Now}
	kubeconfig, err := nodes.begin(ctx)
	if err != nil {
		return err
	}
	r := servecontroller.New(m.GetClient(), o)
	server, err := serve.New(serve.Options{Source: r, Kubeconfig: kubeconfig, Pools: []string{"*"}, SecureListen: s.listen,
		CertFile: id.certFile, KeyFile: id.keyFile,
		Token: id.token, Files: s.files(), Registry: o.Proxy, MaxConnections: maxConnections, Log: log})
	if err != nil {
		return err
	}
	r.OnChange(server.Reload)
	if err := r.SetupWithManager(m); err != nil {
		return err
	}
	work := []func(context.Context) error{server.Run, newPullSecret(s.pullSecrets, o, r).
		run, func(ctx context.Context) error { return id.renew(ctx, s.hosts) }}
	if kubeconfig != "" {
		work = append(work, nodes.run)
	}
	if err := addWork(m, r.Ready, work); err != nil {
		return fmt.Errorf("set up config server: %w", err)
	}
	log.WithFields(logrus.Fields{"url": url, "listen": server.SecureAddr()}).Info("serving new nodes")
	return m.Start(ctx)
}

// addWork adds to the manager what the server does beside its controller; ready says that it has configs to serve.
func addWork(m ctrlmanager.Manager, ready healthz.Checker, work []func(context.Context) error) error {
	if err := m.AddReadyzCheck("configs", ready); err != nil {
		return err
	}
	for _, add := range work {
		if err := m.Add(ctrlmanager.RunnableFunc(add)); err != nil {
			return err
		}
	}
	return nil
}

// address is where nodes reach the server: host:port, and the URL.
func (s *configServer) address() (string, string) {
	_, port, _ := net.SplitHostPort(s.listen)
	address := net.JoinHostPort(s.hosts[0], port)
	if s.url == "" {
		return address, "https://" + address
	}
	return address, s.url
}

// maxConnections bounds the memory of a server that a whole fleet asks at once.
const maxConnections = 1024

// agentName is the agent's name below /files/.
const agentName = "dayone-daemon"

func (s *configServer) files() map[string]string {
	if s.daemon == "" {
		return nil
	}
	return map[string]string{agentName: s.daemon}
}

// options say what layered nodes get beside their config.
func (s *configServer) options(id *serverIdentity, address, url string) (servecontroller.Options, error) {
	first := &firstboot.IgnitionOptions{Config: firstboot.Config{PersistNICNames: true}}
	if s.daemon != "" {
		hash, err := sha512File(s.daemon)
		if err != nil {
			return servecontroller.Options{}, err
		}
		first.DaemonURL, first.DaemonSHA512 = url+"/files/"+agentName, hash
	}
	transport, err := s.registryTransport()
	if err != nil {
		return servecontroller.Options{}, err
	}
	known, raw, err := readAccounts(s.pullSecrets)
	if err != nil {
		return servecontroller.Options{}, err
	}
	first.PullAuth = raw
	proxy := &servecontroller.Proxy{Password: id.token, Keychain: known, Transport: transport}
	return servecontroller.Options{FirstBoot: first, Proxy: proxy, ProxyAddress: address, ProxyCA: id.ca.CertificatePEM(),
		Registry: s.registry}, nil
}

// registryTransport trusts the system's authorities and those of --registry-ca.
func (s *configServer) registryTransport() (http.RoundTripper, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute
	if s.registryCAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(s.registryCAFile)
	if err != nil {
		return nil, fmt.Errorf("read --registry-ca: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read --registry-ca: %s holds no certificate", s.registryCAFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}
