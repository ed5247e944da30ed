package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/bootstrap/preview"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// clusterPlan is what dayone cluster plan prints. docs/operators/rollout.md describes it.
type clusterPlan struct {
	// Source is the cluster's address, the dump's directory or the install directory.
	Source string `json:"source"`
	// At is the moment that the answer is for.
	At time.Time `json:"at"`
	// Recorded: the objects come from a dump.
	Recorded bool `json:"recorded,omitempty"`
	// Install is what an installation from the directory of dayone plan does.
	Install *preview.Plan `json:"install,omitempty"`
	// Refused are settings of the disruption policies that cannot be used; they count as not given.
	Refused []string `json:"refused,omitempty"`
	// Pools are the pools' plans, by name.
	Pools []poolPlan `json:"pools"`
}

// poolPlan is the planner's answer for one pool.
type poolPlan struct {
	rollout.Plan
	// Layered: a MachineOSConfig opts the pool in.
	Layered bool `json:"layered"`
	// Done: every node has the target.
	Done bool `json:"done"`
	// Faults are what somebody must mend, in words.
	Faults []string `json:"faults,omitempty"`
	// LookAgainSeconds is after which time the answer may change without any object changing, rounded up; 0: it does not.
	LookAgainSeconds int `json:"lookAgainSeconds,omitempty"`
	// Effect is what the target does to the nodes that do not have it; absent where the objects do not tell.
	Effect *poolEffect `json:"effect,omitempty"`

	look *rollout.Look
}

// attention tells that nothing goes on without a person.
func (p *poolPlan) attention() bool {
	return len(p.Faults) > 0 || slices.ContainsFunc(p.Verdicts, func(v rollout.Verdict) bool {
		return v.Phase == rollout.PhaseFailed || v.Phase == rollout.PhaseBlocked
	})
}

func newClusterPlan(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	var code bool
	var pool string
	var files []string
	cmd := &cobra.Command{
		Use: "plan [-f FILE…]",
		Short: "Show which nodes go to their pool's target next and what that does to them; with -f, what the files " +
			"would do",
		Long: "Plan runs the planner of the node controller on a cluster or on a dump of one and changes nothing. With " +
			"--exit-code it ends with 0 when every " +
			"node has its target, 4 when some have not yet, and 5 when that needs a person.\n" +
			"With -f it says what would happen if the files were applied, and --exit-code ends with 0 when no service " +
			"and no pod notices, 2 when units are " +
			"reloaded or restarted, 3 when nodes drain, 4 when they reboot, and 5 when installed nodes cannot take it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := readClusterPlan(cmd.Context(), f, pool, files)
			if err != nil {
				return err
			}
			text, answer := p.print, p.answer
			if len(files) > 0 {
				text, answer = p.printEffects, p.worst
			}
			if err := cli.Print(cmd, p, text); err != nil || !code {
				return err
			}
			return answer()
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"file of objects that are taken to be applied: MachineConfigs, mirror sets, policies and their like; may be "+
			"repeated")
	cmd.Flags().BoolVar(&code, "exit-code", false, "let the exit code be the answer")
	return cmd
}

// readClusterPlan reads the objects, as they would be with the files applied, and plans every pool, or the one that is
// named.
func readClusterPlan(ctx context.Context, f *sourceFlags, pool string, files []string) (*clusterPlan, error) {
	s, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		if s.lister, err = over(s.lister, files); err != nil {
			return nil, err
		}
	}
	p, err := s.plan(ctx, len(files) > 0)
	if err != nil || pool == "" {
		return p, err
	}
	p.Pools = slices.DeleteFunc(p.Pools, func(have poolPlan) bool { return have.Pool != pool })
	if len(p.Pools) == 0 {
		return nil, fmt.Errorf("plan pool %s: %s has no such pool", pool, s.name)
	}
	return p, nil
}

// plan plans every pool; whatIf: the source has objects that are not applied yet, so that the pools are rendered anew.
func (s *source) plan(ctx context.Context, whatIf bool) (*clusterPlan, error) {
	objects, err := s.rolloutObjects(ctx)
	if err != nil {
		return nil, err
	}
	e, err := newEffects(ctx, s, objects)
	if err != nil {
		return nil, err
	}
	if whatIf {
		if err := e.preview(ctx); err != nil {
			return nil, err
		}
	}
	p := planCluster(s, objects)
	p.Refused = e.settings.Refused
	for i := range p.Pools {
		have := &p.Pools[i]
		have.Effect, err = e.of(ctx, have.look, have.MaxUnavailable)
		if err != nil && whatIf {
			return nil, err // Without files a dump that lacks rendered configs still tells who goes next.
		}
	}
	return p, nil
}

// planCluster plans every pool.
func planCluster(s *source, objects *rollout.Cluster) *clusterPlan {
	p := &clusterPlan{Source: s.name, At: s.at.UTC().Truncate(time.Second), Recorded: s.recorded, Pools: []poolPlan{}}
	for i := range objects.Pools {
		if look := objects.Look(objects.Pools[i].Name); look != nil {
			p.Pools = append(p.Pools, planPool(look, s.at))
		}
	}
	slices.SortFunc(p.Pools, func(a, b poolPlan) int { return cmp.Compare(a.Pool, b.Pool) })
	return p
}

// planPool plans one pool as the node controller does. What only the controller can find out, whether the image can be
// pulled, is taken from what it has written.
func planPool(look *rollout.Look, at time.Time) poolPlan {
	if why := look.RefusedImage(); why != "" {
		look.Hold(why)
		look.Faults = append(look.Faults, why)
	}
	plan := look.Plan(at)
	out := poolPlan{Plan: plan, Layered: look.Layered, Faults: look.Faults,
		LookAgainSeconds: int(math.Ceil(plan.LookAgain.Seconds())), look: look}
	out.Done = look.Done(plan)
	if out.Next == nil {
		out.Next = []string{}
	}
	return out
}

// answer is the plan as an exit code.
func (p *clusterPlan) answer() error {
	code := cli.ExitOK
	for i := range p.Pools {
		switch {
		case p.Pools[i].attention():
			return cli.Answer(cli.ExitAttention)
		case !p.Pools[i].Done:
			code = cli.ExitUnderWay
		}
	}
	return cli.Answer(code)
}

func (p *clusterPlan) print(w io.Writer) error {
	for _, r := range p.Refused {
		fmt.Fprintf(w, "refused: %s\n", r)
	}
	for i := range p.Pools {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := p.Pools[i].print(w); err != nil {
			return err
		}
	}
	return nil
}

func (p *poolPlan) print(w io.Writer) error {
	c := p.Counts
	fmt.Fprintf(w, "pool %s: %d of %d nodes have %s\n", p.Pool, c.Updated, c.Nodes, describeTarget(p.Target))
	fmt.Fprintf(w, "  unavailable: %d of at most %d; failed: %d\n", c.Unavailable, p.MaxUnavailable, c.Degraded)
	if p.Effect != nil && p.Effect.Nodes > 0 {
		fmt.Fprintf(w, "  effect: %s\n", p.Effect.line())
	}
	if p.Stopped != "" {
		fmt.Fprintf(w, "  no node starts: %s\n", p.Stopped)
	}
	for _, fault := range p.Faults {
		if fault != p.Stopped {
			fmt.Fprintf(w, "  to mend: %s\n", fault)
		}
	}
	if len(p.Verdicts) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprint(t, "\n  NODE\tPHASE\tORDER\tREASON\tWHY\n")
	verdicts := slices.Clone(p.Verdicts)
	slices.SortStableFunc(verdicts, func(a, b rollout.Verdict) int { return cmp.Compare(rank(a), rank(b)) })
	for _, v := range verdicts {
		order := "-"
		if v.Position > 0 {
			order = fmt.Sprint(v.Position)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", v.Node, v.Phase, order, v.Reason, v.Message)
	}
	return t.Flush()
}

// rank puts what moves or needs a person above what waits, and that above what is done.
func rank(v rollout.Verdict) int {
	phases := []rollout.Phase{rollout.PhaseFailed, rollout.PhaseBlocked, rollout.PhaseUpdating, rollout.PhaseNext,
		rollout.PhaseWaiting, rollout.PhaseUpdated}
	return slices.Index(phases, v.Phase)*(1<<20) + v.Position
}

func describeTarget(t target.Target) string {
	if t.Config == "" {
		return "a target, which is not rendered yet"
	}
	return t.String()
}

// conditionsOf are a pool's conditions that are true and not the usual state of affairs.
func conditionsOf(p *mcfgv1.MachineConfigPool) []string {
	var out []string
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionTrue && strings.HasSuffix(string(c.Type), "Degraded") {
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, c.Message), ": "))
		}
	}
	return out
}
