// Package plan holds the commands that show what will happen.
//
//	install directory | cluster | dump -> plan | cluster plan | cluster why | cluster policies -> text, JSON, YAML
package plan

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/docs/schemas"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/fleet/snapshot"
)

// Commands are dayone plan and dayone schema; version is the program's.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{connect.WithHints(newPlan(version), ""), newSchema()}
}

// OfCluster are the group's commands of dayone cluster.
func OfCluster(c *connect.Flags) []*cobra.Command {
	return []*cobra.Command{newClusterPlan(c), newWhy(c), newPolicies(c)}
}

// sourceFlags say where the objects of a question come from and which moment it is about.
type sourceFlags struct {
	*connect.Flags
	// from is a dump's directory, a kubeconfig, or nothing.
	from string
	// at is the moment to answer for, RFC 3339; empty: now.
	at string
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	f.addFrom(cmd)
	f.addAt(cmd)
}

func (f *sourceFlags) addFrom(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.from, "from", "", "directory of objects as kubectl get -o yaml or must-gather write them, "+
		"or a kubeconfig file; default: the live cluster")
}

func (f *sourceFlags) addAt(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.at, "at", "", "the time to plan for, such as 2026-01-31T22:00:00Z; default: now")
}

// moment is the one to answer for.
func (f *sourceFlags) moment() (time.Time, error) {
	if f.at == "" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, f.at)
	if err != nil {
		return at, cli.Usagef("--at %q: write it like 2026-01-31T22:00:00Z", f.at)
	}
	return at, nil
}

// open reaches the cluster or reads the dump.
func (f *sourceFlags) open(ctx context.Context) (*snapshot.Source, time.Time, error) {
	at, err := f.moment()
	if err != nil {
		return nil, at, err
	}
	flags := *f.Flags
	if f.from != "" && f.Kubeconfig != "" {
		return nil, at, cli.Usagef("--from and --kubeconfig both say where the cluster is read: keep one of them")
	}
	if f.from != "" {
		info, err := os.Stat(f.from)
		if err != nil {
			return nil, at, fmt.Errorf("read --from (a directory of objects, or a kubeconfig): %w", err)
		}
		if info.IsDir() && f.Context != "" {
			return nil, at, cli.Usagef("--context is for a kubeconfig, and --from names a directory")
		}
		if info.IsDir() {
			s, err := snapshot.Recorded(f.from)
			if err != nil {
				return nil, at, err
			}
			s.Image = preview.ImageOf
			return s, at, nil
		}
		flags.Kubeconfig = f.from
	}
	api, cfg, err := flags.Client()
	if err != nil {
		return nil, at, err
	}
	return live(ctx, api, cfg.Host, f.Namespace), at, nil
}

// live is a cluster with its builder foreseen.
func live(ctx context.Context, c client.Reader, name, namespace string) *snapshot.Source {
	s := snapshot.Live(ctx, c, name, namespace)
	s.Image = preview.ImageOf
	return s
}

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print a JSON schema of install-config.yaml for editors, or of what commands print with -o json",
		Long: "KIND is the kind of what a command prints with -o json. There are: " +
			strings.Join(schemas.Kinds(), ", ") + ".",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: schemas.Kinds(),
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := installconfig.Schema()
			if len(args) > 0 {
				schema = schemas.Of(args[0])
			}
			if schema == nil {
				return cli.Usagef("there is no kind %q; %s", args[0], report.DidYouMean(args[0], schemas.Kinds(),
					"dayone schema --help lists them"))
			}
			_, err := cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
