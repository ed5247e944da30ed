package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/target"
)

func newWhy(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	var code bool
	cmd := &cobra.Command{
		Use:   "why NODE",
		Short: "Explain how far a node's update is and what it waits for",
		Long: "Why runs the planner of the node controller on a cluster or on a dump of one and explains its verdict " +
			"on one node. With --exit-code it exits with 0 when the node has its target, 4 when it is still to update, " +
			"and 5 when a person must act.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, at, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			in, err := s.Read(cmd.Context(), at)
			if err != nil {
				return err
			}
			n, err := forecast.Why(in, args[0])
			if err != nil {
				return err
			}
			if err := cli.Print(cmd, n, func(w io.Writer) error { return writeNode(w, n) }); err != nil || !code {
				return err
			}
			return exitOf(n.Progress())
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&code, "exit-code", false, "make the exit code the answer")
	return cmd
}

func writeNode(w io.Writer, n *forecast.Node) error {
	if n.Verdict == nil {
		_, err := fmt.Fprintf(w, "node %s: %s\n", n.Node, n.Fault)
		return err
	}
	v := n.Verdict
	fmt.Fprintf(w, "node %s of pool %s: %s (%s)\n", n.Node, n.Pool, v.Phase, v.Reason)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-8s %s\n", name+":", value)
		}
	}
	line("why", v.Message)
	if v.Position > 0 {
		line("place", fmt.Sprintf("%d of the %d that update now or wait", v.Position, n.Waiting))
	}
	line("current", cmp.Or(n.Current.Config, "not reported yet")+inImage(n.Current))
	if n.Desired != n.Current {
		line("desired", cmp.Or(n.Desired.Config, "nothing")+inImage(n.Desired))
	}
	line("target", describeTarget(n.Target))
	line("agent", strings.TrimSuffix(n.State+": "+n.Reason, ": "))
	line("drain", n.Drain)
	for _, other := range n.InTheWay {
		line("others", other)
	}
	for _, fault := range slices.Concat(n.Faults, n.PoolConditions) {
		line("pool", fault)
	}
	return nil
}

func inImage(t target.Target) string {
	if t.Image == "" {
		return ""
	}
	return " in image " + t.Image
}
