package connect

import (
	"fmt"
	"net/http"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Flags say which cluster and where in it. Version is the program's.
type Flags struct {
	Kubeconfig, Context, Namespace, Version string
}

// Add defines the flags.
func (f *Flags) Add(s *pflag.FlagSet) {
	s.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file; default: KUBECONFIG or ~/.kube/config")
	s.StringVar(&f.Context, "context", "", "context of the kubeconfig; default: its current one")
	s.StringVarP(&f.Namespace, "namespace", "n", cluster.DefaultNamespace, "namespace of dayone's controllers and builds")
}

// Client reaches the cluster.
func (f Flags) Client() (client.Client, *rest.Config, error) {
	cfg, err := RESTConfig(f.Kubeconfig, f.Context)
	if err != nil {
		return nil, nil, err
	}
	// The apiserver bounds its own load; client-go's limit of five requests a second would only make people wait.
	cfg.QPS = -1
	cfg.UserAgent = "dayone/" + f.Version
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return dialer{next} })
	scheme, err := Scheme()
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	return c, cfg, nil
}
