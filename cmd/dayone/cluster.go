package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/manager"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// pluginName is what kubectl looks for when somebody types kubectl dayone.
const pluginName = "kubectl-dayone"

// arguments are those of this program: under the name kubectl-dayone it is dayone cluster.
func arguments(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	if strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == pluginName {
		return append([]string{"cluster"}, argv[1:]...)
	}
	return argv[1:]
}

// clusterFlags say which cluster and where in it.
type clusterFlags struct {
	kubeconfig, context, namespace string
}

func newClusterCommand() *cobra.Command {
	f := &clusterFlags{}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Work with a cluster: install, upgrade, status, plan, why, policies, uninstall",
		Long: "Work with a cluster. A copy of or a link to this program that is called " + pluginName +
			" does the same as kubectl dayone.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; dayone help cluster lists them", args[0])}
			}
			return cmd.Help()
		},
	}
	p := cmd.PersistentFlags()
	p.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; default: KUBECONFIG or ~/.kube/config")
	p.StringVar(&f.context, "context", "", "context of the kubeconfig; default: its current one")
	p.StringVarP(&f.namespace, "namespace", "n", cluster.DefaultNamespace, "namespace of dayone's controllers and builds")
	allowYAML(cmd)
	for _, sub := range []*cobra.Command{newClusterInstall(f), newClusterUpgrade(f), newClusterManifests(f),
		newClusterStatus(f), newClusterUninstall(f),
		newClusterLogs(f), newClusterPlan(f), newClusterWhy(f), newClusterPolicies(f)} {
		cmd.AddCommand(withHints(sub))
	}
	return cmd
}

// allowYAML lets a command and those below it print YAML, too: of such checks the nearest one counts.
func allowYAML(cmd *cobra.Command) {
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if o, _ := cmd.Flags().GetString("output"); !slices.Contains([]string{"text", "json", "yaml"}, o) {
			return usageError{fmt.Errorf("--output %q: write text, json or yaml", o)}
		}
		return nil
	}
}

// connect reaches the cluster.
func (f *clusterFlags) connect() (client.Client, *rest.Config, error) {
	cfg, err := manager.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return nil, nil, err
	}
	// The apiserver bounds its own load; client-go's limit of five requests a second would only make people wait.
	cfg.QPS = -1
	cfg.UserAgent = "dayone/" + version
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(tellDials)
	scheme, err := manager.Scheme()
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("reach the cluster at %s: %w", cfg.Host, err)
	}
	return c, cfg, nil
}

// imageFlags are --image REF for all programs and --image PROGRAM=REF for one.
type imageFlags []string

// images applies the flags to what is known already, in order.
func (f imageFlags) images(known cluster.Images) (cluster.Images, error) {
	set := map[string]*string{"controller": &known.Controller, "builder": &known.Builder, "daemon": &known.Daemon}
	var bad []error
	for _, value := range f {
		program, ref, one := strings.Cut(value, "=")
		switch {
		case !one:
			for _, image := range set {
				*image = value
			}
		case set[program] != nil:
			*set[program] = ref
		default:
			bad = append(bad, usageError{fmt.Errorf("--image %q: write REF, controller=REF, builder=REF or daemon=REF", value)})
		}
	}
	return known, errors.Join(bad...)
}
