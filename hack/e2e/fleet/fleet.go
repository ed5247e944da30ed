package fleet

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/testnode"
)

// apiPort is where hosts reach the API server, on the bootstrap host.
const apiPort = "6443"

// Options of a fleet; all but Files are required.
type Options struct {
	Lab *testnode.Lab
	// Client and Config are the administrator's, as this machine reaches the API server, at a certificate's name of
	// 127.0.0.1.
	Client client.Client
	Config *rest.Config
	// Agent is the program dayone-daemon; hosts that have one already keep it.
	Agent string
	// Files are put onto every host, such as what a registry asks for.
	Files []File
}

// File is a file of a host.
type File struct {
	Path, Text string
	Mode       fs.FileMode
}

// Fleet is the hosts of one cluster.
type Fleet struct {
	Options
	Hosts []*Host

	mu       sync.Mutex
	listener net.Listener
}

// New makes a fleet without hosts, to which the API server is open.
func New(o Options) (*Fleet, error) {
	f := &Fleet{Options: o}
	return f, f.OpenAPI()
}

// OpenAPI lets the hosts reach the API server, which listens on this machine's loopback, at the bootstrap host.
func (f *Fleet) OpenAPI() error {
	server, err := url.Parse(f.Config.Host)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	l, err := f.Listen(apiPort)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	go Forward(l, func() (net.Conn, error) { return net.Dial("tcp", server.Host) })
	return nil
}

// CloseAPI refuses the hosts' connections, as a server does that is down. Those that there are stay. A second call is
// harmless.
func (f *Fleet) CloseAPI() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		return nil
	}
	err := f.listener.Close()
	f.listener = nil
	return err
}

// Listen opens a port of the bootstrap host.
func (f *Fleet) Listen(port string) (l net.Listener, err error) { return Listen(f.Lab, port) }

// Listen opens a port of a lab's bootstrap host.
func Listen(lab *testnode.Lab, port string) (l net.Listener, err error) {
	err = lab.Network.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(lab.Network.Bootstrap().String(), port))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on the hosts' network: %w", err)
	}
	return l, nil
}

// Forward passes connections on to those that dial makes, until the listener is closed.
func Forward(l net.Listener, dial func() (net.Conn, error)) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go pass(in, dial)
	}
}

func pass(in net.Conn, dial func() (net.Conn, error)) {
	defer in.Close()
	out, err := dial()
	if err != nil {
		return // the client sees its connection end
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// Kubeconfig is one with which a user, in the form of a kubeconfig's own, reaches the API server from the hosts'
// network.
func (f *Fleet) Kubeconfig(user string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://%s", tls-server-name: "127.0.0.1", certificate-authority-data: %s}}],
users: [{name: u, user: %s}], contexts: [{name: c, context: {cluster: c, user: u}}]}`,
		net.JoinHostPort(f.Lab.Network.Bootstrap().String(), apiPort), base64.StdEncoding.EncodeToString(f.Config.CAData),
		user)
}

// Of lists the hosts of a pool.
func (f *Fleet) Of(pool string) (out []*Host) {
	for _, h := range f.Hosts {
		if h.Pool == pool {
			out = append(out, h)
		}
	}
	return out
}

// Boots is how often all hosts have booted.
func (f *Fleet) Boots() (sum int, err error) {
	for _, h := range f.Hosts {
		n, one := h.Node.Boots()
		sum, err = sum+n, errors.Join(err, one)
	}
	return sum, err
}

// Explain is what somebody needs who looks for the reason of a failure.
func (f *Fleet) Explain(ctx context.Context) string {
	const tail = 6000
	var out strings.Builder
	for _, h := range f.Hosts {
		text, _ := h.Node.Log()
		fmt.Fprintf(&out, "%s: journal %s, record %+v, console:\n%s\n", h.Name, h.State(), h.Record(ctx),
			text[max(0, len(text)-tail):])
	}
	return out.String()
}
