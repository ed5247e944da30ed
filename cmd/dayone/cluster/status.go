package cluster

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/dayone/plan"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/rebase/forecast"
)

// lookInterval is the time between two looks of status --watch: an API server answers each with a dozen lists.
const lookInterval = 2 * time.Second

// statusFlags are those of dayone cluster status.
type statusFlags struct {
	*connect.Flags
	nodes, watch bool
	// shown is the last look as text.
	shown string
}

// clusterStatus is what dayone cluster status says.
type clusterStatus struct {
	*clusterinstall.Status
	// Rollouts say with --nodes what the nodes of each pool do, and what they wait for.
	Rollouts *forecast.Plan `json:"rollouts,omitempty"`
}

func newStatus(c *connect.Flags) *cobra.Command {
	f := &statusFlags{Flags: c}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the controllers, every pool with a MachineOSConfig, and with --nodes what each node does",
		Long: "Status shows dayone's controllers and the pools with a MachineOSConfig. --nodes adds each pool's rollout: " +
			"what every node does or waits for. --watch looks every two seconds until you stop it, and prints what has " +
			"changed; with -o json each look is one line.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, config, err := c.Client()
			if err != nil {
				return err
			}
			if err := f.look(cmd, api, config.Host); err != nil || !f.watch {
				return err
			}
			return f.goOn(cmd, api, config.Host)
		},
	}
	cmd.Flags().BoolVar(&f.nodes, "nodes", false, "also show what each node does, and what it waits for")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "look every two seconds, and print what has changed")
	return cmd
}

// goOn looks until the user stops it. A cluster that does not answer for a while ends nothing: its API server may just
// take its turn.
func (f *statusFlags) goOn(cmd *cobra.Command, api client.Reader, host string) error {
	for {
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(lookInterval):
		}
		if err := f.look(cmd, api, host); err != nil && cmd.Context().Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "not known: %v\n", err)
		}
	}
}

// look reads everything once and prints it.
func (f *statusFlags) look(cmd *cobra.Command, api client.Reader, host string) error {
	ctx := cmd.Context()
	s, err := clusterinstall.ReadStatus(ctx, api, wanted(cmd, f.Flags))
	if err == nil && s.Mode != cluster.Full {
		err = explainPools(ctx, api, s)
	}
	if err != nil {
		return err
	}
	out := clusterStatus{Status: s}
	if f.nodes && s.Installed {
		if out.Rollouts, err = plan.Rollouts(ctx, api, host, s.Namespace); err != nil {
			return err
		}
	}
	text := func(w io.Writer) error { return f.show(w, out) }
	if f.watch {
		return cli.PrintOneOfMany(cmd, "ClusterStatus", out, text)
	}
	return cli.Print(cmd, "ClusterStatus", out, text)
}

// show writes a look for people, unless the one before looked the same.
func (f *statusFlags) show(w io.Writer, s clusterStatus) error {
	var text strings.Builder
	if err := s.write(&text); err != nil || text.String() == f.shown {
		return err
	}
	if f.shown != "" {
		fmt.Fprintf(w, "\n%s\n", time.Now().UTC().Format(time.RFC3339))
	}
	f.shown = text.String()
	return s.write(w) // which may be a terminal, whose width counts
}

func (s clusterStatus) write(w io.Writer) error {
	if err := cli.WriteTable(w, func(t io.Writer) { writeStatus(t, s.Status) }); err != nil || s.Rollouts == nil {
		return err
	}
	fmt.Fprintln(w)
	return plan.WriteRollouts(w, s.Rollouts)
}

func writeStatus(t io.Writer, s *clusterinstall.Status) {
	if !s.Installed {
		fmt.Fprintf(t, "dayone is not installed in namespace %s\n", s.Namespace)
		return
	}
	fmt.Fprintf(t, "dayone %s in namespace %s, mode %s\n\nPROGRAM\tAVAILABLE\tDETAIL\n", s.Version, s.Namespace, s.Mode)
	for _, p := range s.Programs {
		fmt.Fprintf(t, "%s\t%t\t%s\n", p.Name, p.Available, p.Detail)
	}
	if len(s.Conditions) > 0 {
		fmt.Fprint(t, "\nCONDITION\tSTATUS\tREASON\tDETAIL\n")
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, f := range s.Findings {
		fmt.Fprintf(t, "\nfinding: %s\n", f)
	}
	fmt.Fprint(t, "\nPOOL\tOPTED IN\tSTATE\tIMAGE\tDETAIL\n")
	for _, p := range s.Pools {
		fmt.Fprintf(t, "%s\t%t\t%s\t%s\t%s\n", p.Pool, p.OptedIn, p.State, cmp.Or(p.Image, "-"), p.Detail)
	}
}
