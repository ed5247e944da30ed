package plan

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/target"
)

func newClusterPlan(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	var code bool
	var pool string
	var files []string
	cmd := &cobra.Command{
		Use:   "plan [-f FILE…]",
		Short: "Show which nodes update next and what the update does to them; with -f, what the files would change",
		Long: "Plan runs the planner of the node controller on a cluster or on a dump of one and changes nothing. With " +
			"--exit-code it exits with 0 when every node has its target, 4 when some nodes are still to update, and 5 " +
			"when a person must act.\n" +
			"With -f it shows what would happen if you applied the files. With --exit-code it then exits with 0 when no " +
			"service and no pod is affected, 2 when units reload or restart, 3 when nodes drain, 4 when they reboot, and " +
			"5 when installed nodes cannot apply the change. With 7, not everything is known that the answer depends on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := ofCluster(cmd.Context(), f, pool, files)
			if err != nil {
				return err
			}
			text, answer := writePools, exitOf(p.Progress())
			if len(files) > 0 {
				text, answer = writeChanges, cli.Answer(p.Level())
			}
			if err := cli.Print(cmd, p, func(w io.Writer) error { return text(w, p) }); err != nil || !code {
				return err
			}
			return answerOf(p, answer)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"file of objects to plan for as if they were applied: MachineConfigs, mirror sets, policies (repeatable)")
	cmd.Flags().BoolVar(&code, "exit-code", false, "make the exit code the answer")
	return cmd
}

// ofCluster plans every pool, or the one that is named, as it would be with the files applied.
func ofCluster(ctx context.Context, f *sourceFlags, pool string, files []string) (*forecast.Plan, error) {
	s, at, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	var in forecast.Input
	if len(files) == 0 {
		in, err = s.Read(ctx, at)
	} else {
		var changes *snapshot.Dump
		if changes, err = snapshot.ReadFiles(files...); err != nil {
			return nil, err
		}
		if changes.Empty() {
			return nil, errors.New("read files: none of their objects affects nodes: pass MachineConfigs, mirror sets, " +
				"KubeletConfigs, MachineConfigPools or the MachineConfiguration")
		}
		in, err = s.ReadWith(ctx, changes, at, render.VersionsOf(f.Version))
	}
	if err != nil {
		return nil, err
	}
	p, err := forecast.Of(in)
	if err != nil {
		return nil, err
	}
	return p, p.Only(pool)
}

// exitOf is a rollout's progress as the program's answer.
func exitOf(p forecast.Progress) cli.Answer {
	return map[forecast.Progress]cli.Answer{forecast.Done: cli.ExitOK, forecast.UnderWay: cli.ExitUnderWay,
		forecast.Attention: cli.ExitAttention}[p]
}

// answerOf is the answer of a plan that may be incomplete. What is not known cannot make the worst answer worse.
func answerOf(p *forecast.Plan, known cli.Answer) cli.Answer {
	if len(p.Unknown) > 0 && known != cli.ExitAttention {
		return cli.ExitIncomplete
	}
	return known
}

func writePools(w io.Writer, p *forecast.Plan) error {
	for _, u := range p.Unknown {
		fmt.Fprintf(w, "not known: %s\n", u)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(w, "refused: %s\n", r)
	}
	for i := range p.Pools {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := writePool(w, &p.Pools[i]); err != nil {
			return err
		}
	}
	return nil
}

func writePool(w io.Writer, p *forecast.Pool) error {
	c := p.Counts
	fmt.Fprintf(w, "pool %s: %d of %d nodes have %s\n", p.Pool, c.Updated, c.Nodes, describeTarget(p.Target))
	fmt.Fprintf(w, "  unavailable: %d of at most %d; failed: %d\n", c.Unavailable, p.MaxUnavailable, c.Degraded)
	if p.Effect != nil && p.Effect.Nodes > 0 {
		fmt.Fprintf(w, "  effect: %s\n", summary(p.Effect))
	}
	if p.Stopped != "" {
		fmt.Fprintf(w, "  no node starts to update: %s\n", p.Stopped)
	}
	for _, fault := range p.Faults {
		if fault != p.Stopped {
			fmt.Fprintf(w, "  to fix: %s\n", fault)
		}
	}
	if len(p.Verdicts) == 0 {
		return nil
	}
	return cli.WriteTable(w, func(t io.Writer) {
		fmt.Fprint(t, "\n  NODE\tPHASE\tORDER\tREASON\tWHY\n")
		for _, v := range p.ByUrgency() {
			order := "-"
			if v.Position > 0 {
				order = fmt.Sprint(v.Position)
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", v.Node, v.Phase, order, v.Reason, v.Message)
		}
	})
}

func describeTarget(t target.Target) string {
	if t.Config == "" {
		return "a target that is not rendered yet"
	}
	return t.String()
}
