package plan

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/rebase/forecast"
)

func newPolicies(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List the actions after a change of each file, unit and the SSH keys, with their origin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, at, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			in, err := s.Read(cmd.Context(), at)
			if err != nil {
				return err
			}
			p, err := forecast.Rules(in)
			if err != nil {
				return err
			}
			return cli.Print(cmd, "DisruptionPolicies", p, func(w io.Writer) error { return writePolicies(cli.Prose(w), p) })
		},
	}
	f.addFrom(cmd)
	return cmd
}

func writePolicies(w io.Writer, p *forecast.Policies) error {
	err := cli.WriteTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "KIND\tNAME\tACTIONS\tORIGIN\tPOOL\tEFFECT\tNODES NOW")
		for _, r := range p.Rules {
			nodes := "?" // nobody could count them
			if r.Nodes != nil {
				nodes = strconv.Itoa(*r.Nodes)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Kind, cmp.Or(r.Name, "-"), r.Actions, r.Origin,
				cmp.Or(r.Pool, "all"), r.Effect, nodes)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe longest path wins. A change that no rule covers drains and reboots the node.")
	for _, m := range p.Mirrors {
		fmt.Fprintf(w, "mirrors: no change of an %s drains nodes\n", m)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(w, "refused: %s\n", r)
	}
	for _, e := range p.WithoutEffect {
		fmt.Fprintf(w, "not dayone's: %s\n", e)
	}
	for _, d := range p.Doubts {
		fmt.Fprintf(w, "doubtful: %s\n", d)
	}
	return nil
}
