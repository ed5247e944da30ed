package render

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/cmd/internal/cli"
)

// serveFlags are the flags of dayone serve; names follow machine-config-server bootstrap.
type serveFlags struct {
	baseDir, bind, cert, key, kubeconfig string
	securePort, insecurePort             int
	certs, files, networks, pools        []string
	tokenFile, metrics                   string
}

// newServeCommand is dayone serve: the Ignition config server over a rendered directory.
func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve --server-basedir DIR --bootstrap-kubeconfig FILE",
		Short: "Serve rendered configs to nodes that boot",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.baseDir, "server-basedir", "/etc/mcs/bootstrap", "directory that dayone render has written")
	flags.StringVar(&f.bind, "bind", "", "address to listen on (default: all)")
	flags.IntVar(&f.securePort, "secure-port", 22623, "port for HTTPS, 0 for none")
	flags.IntVar(&f.insecurePort, "insecure-port", 22624, "port for HTTP, 0 for none")
	flags.StringVar(&f.cert, "cert", "", "the server's certificate in PEM; without it the server has no HTTPS")
	flags.StringVar(&f.key, "key", "", "key of the certificate in PEM")
	flags.StringVar(&f.kubeconfig, "bootstrap-kubeconfig", "", "kubeconfig that nodes get; empty for none")
	flags.StringArrayVar(&f.certs, "bootstrap-certs", nil,
		"HOST=FILE: CA certificate of a registry, for the nodes (repeatable)")
	flags.StringArrayVar(&f.files, "file", nil, "NAME=FILE: serve FILE as /files/NAME (repeatable)")
	flags.StringArrayVar(&f.networks, "allow-network", nil,
		"network in CIDR form that clients must come from (repeatable; default: all)")
	flags.StringArrayVar(&f.pools, "pool", nil,
		"pool whose config to serve (repeatable, * for all; default: master, arbiter)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token that clients must send as bearer token")
	flags.StringVar(&f.metrics, "metrics-listen", "",
		"address for /metrics over HTTP, for example 127.0.0.1:9090 (default: none)")
	cmd.MarkFlagsRequiredTogether("cert", "key")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	log := cli.Log(cmd)
	options.Log = log
	server, err := serve.New(options)
	if err != nil {
		return err
	}
	log.WithFields(logrus.Fields{"secure": server.SecureAddr(), "insecure": server.InsecureAddr()}).Info("serving configs")
	return server.Run(cmd.Context())
}

func (f *serveFlags) options() (serve.Options, error) {
	o := serve.Options{BaseDir: f.baseDir, Kubeconfig: f.kubeconfig, CertFile: f.cert, KeyFile: f.key, Pools: f.pools,
		MetricsListen: f.metrics}
	if f.cert != "" && f.securePort != 0 {
		o.SecureListen = net.JoinHostPort(f.bind, strconv.Itoa(f.securePort))
	}
	if f.insecurePort != 0 {
		o.InsecureListen = net.JoinHostPort(f.bind, strconv.Itoa(f.insecurePort))
	}
	if o.SecureListen == "" && o.InsecureListen == "" {
		return o, cli.Usagef("nothing to listen on: give --cert and --key, or an --insecure-port")
	}
	var err error
	if o.BootstrapCerts, err = pairs("--bootstrap-certs", f.certs); err != nil {
		return o, err
	}
	if o.Files, err = pairs("--file", f.files); err != nil {
		return o, err
	}
	for _, n := range f.networks {
		network, err := netip.ParsePrefix(n)
		if err != nil {
			return o, cli.Usagef("read --allow-network %q: write it as 192.0.2.0/24", n)
		}
		o.AllowedNetworks = append(o.AllowedNetworks, network)
	}
	if f.tokenFile != "" {
		raw, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return o, fmt.Errorf("read token: %w", err)
		}
		if o.Token = strings.TrimSpace(string(raw)); o.Token == "" {
			return o, fmt.Errorf("read token: %s is empty", f.tokenFile)
		}
	}
	return o, nil
}

// pairs reads NAME=FILE arguments.
func pairs(flag string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range args {
		name, file, ok := strings.Cut(a, "=")
		if !ok || name == "" || file == "" {
			return nil, cli.Usagef("read %s %q: write it as NAME=FILE", flag, a)
		}
		out[name] = file
	}
	return out, nil
}
