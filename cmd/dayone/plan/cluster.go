package plan

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/proposal"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

func newClusterPlan(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	var code bool
	var pool string
	var change proposal.Options
	cmd := &cobra.Command{
		Use:   "plan [-f FILE]... [--delete KIND/NAME]...",
		Short: "Show which nodes update next and what the update does to them; with -f, what the files would change",
		Long: "Plan runs the planner of the node controller on a cluster or on a dump of one and changes nothing. With " +
			"--exit-code it exits with 0 when every node has its target, 4 when some nodes are still to update, and 5 " +
			"when a person must act.\n" +
			"With -f it shows what would happen if you applied the files, with --delete if you deleted objects. It refuses " +
			"unknown fields and values of the wrong kind, and names objects that nothing selects or that it cannot " +
			"forecast. With --exit-code it then exits with 0 when no " +
			"service and no pod is affected, 2 when units reload or restart, 3 when nodes drain, 4 when they reboot, and " +
			"5 when installed nodes cannot apply the change. With 7, not everything is known that the answer depends on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			change.Stdin = cmd.InOrStdin()
			p, err := ofCluster(cmd.Context(), f, pool, change)
			if err != nil {
				return err
			}
			text, answer := writeRollouts, exitOf(p.Progress())
			if !change.Empty() {
				text, answer = writeChanges, cli.Answer(p.Level())
			}
			if err := cli.Print(cmd, "Plan", p, func(w io.Writer) error { return text(cli.Prose(w), p) }); err != nil || !code {
				return err
			}
			return answerOf(p, answer)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	_ = cmd.RegisterFlagCompletionFunc("pool", c.Value(connect.Pools()))
	cmd.Flags().StringArrayVarP(&change.Files, "filename", "f", nil, "file or directory of objects to plan for as if "+
		"they were applied, or - for standard input: MachineConfigs, mirror sets, policies (repeatable)")
	cmd.Flags().StringArrayVar(&change.Remove, "delete", nil,
		"object to plan for as if it were deleted, KIND/NAME, such as machineconfig/50-app (repeatable)")
	cmd.Flags().BoolVar(&code, "exit-code", false, "make the exit code the answer")
	return cmd
}

// ofCluster plans every pool, or the one that is named, as it would be with the change made.
func ofCluster(ctx context.Context, f *sourceFlags, pool string, o proposal.Options) (*forecast.Plan, error) {
	change, err := proposal.Read(ctx, o)
	if err != nil {
		return nil, err
	}
	s, at, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	var in forecast.Input
	if o.Empty() {
		in, err = s.Read(ctx, at)
	} else if err = change.Missing(ctx, s); err == nil {
		in, err = s.ReadWith(ctx, change.Dump, at, render.VersionsOf(f.Version))
	}
	if err != nil {
		return nil, err
	}
	p, err := forecast.Of(in)
	if err != nil {
		return nil, err
	}
	p.Unknown = append(p.Unknown, change.Unknown(in)...)
	p.Hints = change.Hints(in)
	return p, p.Only(pool)
}

// Rollouts is the plan of every pool of a cluster as it is now: what each node does, or waits for. It also gives what
// the plan was made of. name is the cluster's address, namespace that of dayone's controllers.
func Rollouts(ctx context.Context, c client.Reader, name, namespace string) (*forecast.Plan, *rollout.Cluster, error) {
	in, err := live(ctx, c, name, namespace).Read(ctx, time.Now())
	if err != nil {
		return nil, nil, err
	}
	p, err := forecast.Of(in)
	return p, in.Cluster, err
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

// writeRollouts writes a plan for people, pool by pool.
func writeRollouts(w io.Writer, p *forecast.Plan) error {
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
	note := p.UnmanagedNote()
	if note == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", note)
	return err
}

func writePool(w io.Writer, p *forecast.Pool) error {
	c := p.Counts
	fmt.Fprintf(w, "pool %s: %d of %d nodes have %s\n", p.Pool, c.Updated, c.Nodes, describeTarget(p.Target))
	fmt.Fprintf(w, "  unavailable: %d of at most %d; failed: %d\n", c.Unavailable, p.MaxUnavailable, c.Degraded)
	if p.Coming != "" {
		fmt.Fprintf(w, "  next image: %s\n", p.Coming)
	}
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
	for _, complaint := range p.Complaints() {
		fmt.Fprintf(w, "  to fix: %s\n", complaint)
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
