package controlplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"dayone.dev/dayone/hack/kube/process"
)

const (
	// ServiceAddress is kubernetes.default's: the first one of serviceRange.
	ServiceAddress = "10.96.0.1"
	serviceRange   = "10.96.0.0/16"
	// readyPoll is how often a starting server is asked.
	readyPoll = 50 * time.Millisecond
	// probeTimeout bounds one question: a server whose etcd is gone does not answer.
	probeTimeout = 5 * time.Second
)

// Ports of the servers.
type Ports struct{ API, Etcd, Peer int }

// Options of a control plane. Dir, Assets and Ports are required.
type Options struct {
	// Dir gets keys, data and logs; it exists.
	Dir string
	// Assets has the programs, see kube.Assets.
	Assets string
	Ports  Ports
	// LogDir gets the programs' logs; default Dir/log.
	LogDir string
	// Listen is the address the API server binds; default 127.0.0.1.
	Listen string
	// Hosts are further names and addresses of the API server's certificate, beside loopback's and those that pods use.
	Hosts []string
	// Node is the name of a node to make credentials for; default none.
	Node string
	// SharePorts binds with SO_REUSEPORT, so that ports can be held for a server that is not running.
	SharePorts bool
	// APIServerArgs come last.
	APIServerArgs []string
}

// Plane is a prepared control plane.
type Plane struct {
	options Options
	ca      *authority
	admin   pair
}

// New writes keys, certificates and kubeconfigs into Dir.
func New(o Options) (*Plane, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1"
	}
	if o.LogDir == "" {
		o.LogDir = filepath.Join(o.Dir, "log")
	}
	for _, sub := range []string{filepath.Join(o.Dir, "pki"), o.LogDir} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fmt.Errorf("create directory of the control plane: %w", err)
		}
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	p := &Plane{options: o, ca: ca}
	if err := p.writeKeys(); err != nil {
		return nil, fmt.Errorf("write keys of the control plane: %w", err)
	}
	return p, nil
}

func (p *Plane) writeKeys() error {
	key, err := keyutil.MarshalPrivateKeyToPEM(p.ca.key)
	if err != nil {
		return err
	}
	if err := (pair{cert: p.ca.pem(), key: key}).write(p.pki("ca")); err != nil {
		return err
	}
	hosts := append([]string{"localhost", "127.0.0.1", ServiceAddress, "kubernetes", "kubernetes.default",
		"kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}, p.options.Hosts...)
	serving, err := p.ca.server(hosts...)
	if err != nil {
		return err
	}
	if err := serving.write(p.pki("apiserver")); err != nil {
		return err
	}
	tokens, err := p.ca.client("service-accounts") // only the key is used
	if err != nil {
		return err
	}
	if err := tokens.write(p.pki("sa")); err != nil {
		return err
	}
	for name, subject := range p.subjects() {
		credentials, err := p.ca.client(subject[0], subject[1:]...)
		if err != nil {
			return err
		}
		if name == adminName {
			p.admin = credentials
		}
		if err := credentials.write(p.pki(name)); err != nil {
			return err
		}
		if err := p.writeKubeconfig(p.Kubeconfig(name), credentials, p.URL()); err != nil {
			return err
		}
	}
	return nil
}

// Names of credentials.
const (
	adminName         = "admin"
	kubeletClientName = "kubelet-client"
	frontProxyName    = "front-proxy"
	managerName       = "kube-controller-manager"
	schedulerName     = "kube-scheduler"
	// NodeName names the node's kubeconfig.
	NodeName = "node"
)

// subjects gives user and groups of each client.
func (p *Plane) subjects() map[string][]string {
	s := map[string][]string{
		adminName:         {"admin", "system:masters"},
		kubeletClientName: {"kube-apiserver-kubelet-client", "system:masters"},
		frontProxyName:    {frontProxyName},
		managerName:       {"system:kube-controller-manager"},
		schedulerName:     {"system:kube-scheduler"},
	}
	if p.options.Node != "" {
		s[NodeName] = []string{"system:node:" + p.options.Node, "system:nodes"}
	}
	return s
}

func (p *Plane) pki(name string) string { return filepath.Join(p.options.Dir, "pki", name) }

// CAFile is the authority of servers and clients.
func (p *Plane) CAFile() string { return p.pki("ca.crt") }

// Kubeconfig is the path of the credentials of one of the programs, NodeName or "admin".
func (p *Plane) Kubeconfig(name string) string {
	return filepath.Join(p.options.Dir, name+".kubeconfig")
}

// URL is where the programs beside the API server reach it.
func (p *Plane) URL() string {
	return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.options.Ports.API))
}

// WriteAdminKubeconfig writes the administrator's credentials for a server that is reached at url.
func (p *Plane) WriteAdminKubeconfig(path, url string) error {
	return p.writeKubeconfig(path, p.admin, url)
}

func (p *Plane) writeKubeconfig(path string, credentials pair, url string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["dayone"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: p.ca.pem()}
	c.AuthInfos["dayone"] = &clientcmdapi.AuthInfo{ClientCertificateData: credentials.cert, ClientKeyData: credentials.key}
	c.Contexts["dayone"] = &clientcmdapi.Context{Cluster: "dayone", AuthInfo: "dayone"}
	c.CurrentContext = "dayone"
	return clientcmd.WriteToFile(*c, path) // mode 0600
}

// AdminConfig is the administrator's, for a server that is reached at url. Its requests are not throttled.
func (p *Plane) AdminConfig(url string) *rest.Config {
	return &rest.Config{
		Host: url, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca.pem(), CertData: p.admin.cert, KeyData: p.admin.key},
	}
}

// WaitReady asks the API server until it is ready or server has ended.
func WaitReady(ctx context.Context, config *rest.Config, server *process.Process) error {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	last := ""
	for {
		if last = probe(ctx, client, config.Host+"/readyz"); last == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w: %s", ctx.Err(), last)
		case <-server.Done():
			return server.Ended()
		case <-tick.C:
		}
	}
}

// probe gives what the server lacks, "" when it is ready.
func probe(ctx context.Context, client *http.Client, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	answer, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
	return string(text)
}
