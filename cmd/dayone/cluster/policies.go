package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/rebase/disruption"
)

// clusterPolicies is what dayone cluster policies prints. docs/operators/disruption-policies.md describes it.
type clusterPolicies struct {
	Source string `json:"source"`
	// Rules in force: the cluster's and the admin's, which hold everywhere, then those of owners of MachineConfigs by
	// pool.
	Rules []disruption.PublishedRule `json:"rules"`
	// Mirrors are the kinds of mirror objects whose removal drains nothing.
	Mirrors []string `json:"mirrors,omitempty"`
	// Refused are the settings that cannot be used, Doubts those that are probably not meant so.
	Refused []string `json:"refused,omitempty"`
	Doubts  []string `json:"doubts,omitempty"`
}

func newPolicies(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List what follows a change of each file, unit and the SSH keys, and who said so",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			p, err := readPolicies(cmd.Context(), s)
			if err != nil {
				return err
			}
			return cli.Print(cmd, p, p.print)
		},
	}
	cmd.Flags().StringVar(&f.from, "from", "",
		"directory of objects as kubectl get -o yaml or must-gather write them, or a kubeconfig file; default: the "+
			"live cluster")
	return cmd
}

func readPolicies(ctx context.Context, s *source) (*clusterPolicies, error) {
	objects, err := s.rolloutObjects(ctx)
	if err != nil {
		return nil, err
	}
	e, err := newEffects(ctx, s, objects)
	if err != nil {
		return nil, err
	}
	out := &clusterPolicies{Source: s.name, Rules: e.settings.Policies.Published(""), Refused: e.settings.Refused}
	units := map[string]bool{}
	for i := range objects.Pools {
		mc := e.configs[objects.Pools[i].Spec.Configuration.Name]
		if mc == nil {
			continue
		}
		if err := out.add(objects.Pools[i].Name, mc, units); err != nil {
			return nil, err
		}
	}
	for kind, none := range e.settings.Mirrors {
		if none {
			out.Mirrors = append(out.Mirrors, string(kind))
		}
	}
	slices.Sort(out.Mirrors)
	out.Doubts = disruption.Doubts(e.settings.User, units)
	return out, nil
}

// add takes in what a pool's rendered config says.
func (p *clusterPolicies) add(pool string, mc *mcfgv1.MachineConfig, units map[string]bool) error {
	names, owners, err := disruption.Rendered(mc)
	if err != nil {
		return err
	}
	for _, u := range names {
		units[u] = true
	}
	p.Rules = append(p.Rules, owners.Published(pool)...)
	return nil
}

func (p *clusterPolicies) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tNAME\tACTIONS\tORIGIN\tPOOL")
	for _, r := range p.Rules {
		name, pool := r.Name, r.Pool
		if name == "" {
			name = "-"
		}
		if pool == "" {
			pool = "all"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Kind, name, r.Actions, r.Origin, pool)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe longest path wins. What no rule covers drains and reboots the node.")
	for _, m := range p.Mirrors {
		fmt.Fprintf(w, "mirrors: no change of an %s drains\n", m)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(w, "refused: %s\n", r)
	}
	for _, d := range p.Doubts {
		fmt.Fprintf(w, "doubtful: %s\n", d)
	}
	return nil
}
