package cluster

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
)

// newRegistry is the group of what concerns the registries of the control plane.
func newRegistry(c *connect.Flags) *cobra.Command {
	return cli.NewGroup("registry",
		"Look at the registries of the control plane, add and copy images, replace accounts and CA",
		newRegistryStatus(c), newRegistryAdd(c), newRegistryExport(c), newRegistryRotate(c),
		newRegistryRotateCA(c))
}

func newRegistryStatus(c *connect.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which image is in which registry of the control plane, who wants it, and the registries' CA",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, _, err := c.Client()
			if err != nil {
				return err
			}
			s, err := registrystatus.ReadStatus(cmd.Context(), api, c.Namespace)
			if err != nil {
				return err
			}
			return cli.PrintTable(cmd, "ClusterRegistryStatus", s, func(t io.Writer) { writeRegistry(t, s) })
		},
	}
}

func writeRegistry(t io.Writer, s *registrystatus.Status) {
	fmt.Fprintf(t, "registry %s, list of %s\n\nNODE\tNODE READY\tHELD\tSTORED\tFREE\tROOM\tDETAIL\n", s.Registry,
		s.Issued.Format(time.RFC3339))
	for _, n := range s.Nodes {
		room := "not reported"
		if n.Report.RoomBytes != nil {
			room = fmt.Sprintf("%.1f GiB", gibibytes(*n.Report.RoomBytes))
		}
		fmt.Fprintf(t, "%s\t%t\t%d of %d\t%.1f GiB\t%.1f GiB\t%s\t%s\n", n.Name, n.Ready, n.Report.Held,
			n.Report.Wanted, gibibytes(n.Report.StoredBytes), gibibytes(n.Report.FreeBytes), room, n.Behind)
	}
	fmt.Fprint(t, "\nIMAGE\tCOPIES\tMISSING ON\tWANTED BY\n")
	for _, i := range s.Images {
		missing := strings.Join(slices.Sorted(maps.Keys(i.Lacking)), ", ")
		if i.OnlyKeep {
			missing = "not fetched: nobody but a node names it"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", i.Name(), len(i.Held), missing, strings.Join(i.By, ", "))
	}
	writeCA(t, s.CA)
	fmt.Fprint(t, "\nCONDITION\tSTATUS\tREASON\tDETAIL\n")
	for _, c := range s.Conditions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}

func gibibytes(n int64) float64 { return float64(n) / (1 << 30) }
