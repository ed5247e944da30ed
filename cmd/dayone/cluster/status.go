package cluster

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

func newStatus(c *connect.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the controllers and every pool with a MachineOSConfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, _, err := c.Client()
			if err != nil {
				return err
			}
			s, err := clusterinstall.ReadStatus(cmd.Context(), api, wanted(cmd, c))
			if err == nil && s.Mode != cluster.Full {
				err = explainPools(cmd.Context(), api, s)
			}
			if err != nil {
				return err
			}
			return cli.PrintTable(cmd, "ClusterStatus", s, func(t io.Writer) { writeStatus(t, s) })
		},
	}
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
