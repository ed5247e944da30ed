package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/gather/buildlogs"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/cmd/dayone/plan"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

// lookInterval is the time between two looks of status --watch: an API server answers each with a dozen lists.
const lookInterval = 2 * time.Second

// statusFlags are those of dayone cluster status.
type statusFlags struct {
	*connect.Flags
	cli.Looks
	nodes bool
}

// clusterStatus is what dayone cluster status says.
type clusterStatus struct {
	*clusterinstall.Status
	// Rollouts say with --nodes or --watch what the nodes of each pool do, and what they wait for.
	Rollouts *forecast.Plan `json:"rollouts,omitempty"`
	// Board is what status shows to people.
	Board board.Board `json:"board"`
}

func newStatus(c *connect.Flags) *cobra.Command {
	f := &statusFlags{Flags: c}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the controllers, every pool with a MachineOSConfig, and with --nodes what each node does",
		Long: "Status shows dayone's controllers and the pools with a MachineOSConfig. --nodes adds what every node does " +
			"or waits for, and the builds that run. --watch shows all that until you stop it: on a terminal the state now, " +
			"in a pipe a line for each change, and with -o json a line for each look.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, config, err := c.Client()
			if err != nil {
				return err
			}
			f.nodes = f.nodes || f.Watch
			if err := f.look(cmd, api, config); err != nil || !f.Watch {
				return err
			}
			return f.goOn(cmd, api, config)
		},
	}
	cmd.Flags().BoolVar(&f.nodes, "nodes", false, "also show what each node does, and what it waits for")
	cmd.Flags().BoolVarP(&f.Watch, "watch", "w", false, "look every two seconds, and show what has changed")
	return cmd
}

// goOn looks until the user stops it. A cluster that does not answer for a while ends nothing: its API server may just
// take its turn.
func (f *statusFlags) goOn(cmd *cobra.Command, api client.Reader, config *rest.Config) error {
	for {
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(lookInterval):
		}
		if err := f.look(cmd, api, config); err != nil && cmd.Context().Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "not known: %v\n", err)
		}
	}
}

// look reads everything once and prints it.
func (f *statusFlags) look(cmd *cobra.Command, api client.Reader, config *rest.Config) error {
	ctx := cmd.Context()
	s, err := clusterinstall.ReadStatus(ctx, api, wanted(cmd, f.Flags))
	if err == nil && s.Mode != cluster.Full {
		err = explainPools(ctx, api, s)
	}
	if err != nil {
		return err
	}
	out := clusterStatus{Status: s, Board: boardOf(s)}
	if f.nodes && s.Installed {
		plan, objects, err := plan.Rollouts(ctx, api, config.Host, s.Namespace)
		var lacks snapshot.Lacks
		switch {
		case errors.As(err, &lacks): // a cluster gets its pools after dayone, or by it
			out.Board.Notes = append(out.Board.Notes, "there are no "+lacks.Kind+" yet")
		case err != nil:
			return err
		default:
			out.Rollouts = plan
			showRollouts(&out.Board, plan, objects, time.Now())
			out.Board.Builds = builds(ctx, api, config, s, objects.Builds)
		}
	}
	return f.Print(cmd, "ClusterStatus", out, out.Board)
}

// printOutcome prints with -o json and yaml what the cluster has after a change. People were told each step of it.
func printOutcome(cmd *cobra.Command, t clusterinstall.Target) error {
	if cli.Output(cmd) == "text" {
		return nil
	}
	s, err := clusterinstall.ReadStatus(cmd.Context(), t.Client, t.Namespace)
	if err != nil {
		return err
	}
	return cli.Print(cmd, "ClusterStatus", clusterStatus{Status: s, Board: boardOf(s)}, nil)
}

// boardOf shows the installation.
func boardOf(s *clusterinstall.Status) (b board.Board) {
	if !s.Installed {
		b.Notes = []string{"dayone is not installed in namespace " + s.Namespace}
		return withFindings(b, s)
	}
	b.Head = []string{fmt.Sprintf("dayone %s in namespace %s, mode %s", s.Version, s.Namespace, s.Mode)}
	for _, p := range s.Programs {
		row := board.Row{Name: p.Name, State: "unavailable", Progress: board.Failed, Text: p.Detail}
		if p.Available {
			row.State, row.Progress = "available", board.Done
		}
		b.Programs = append(b.Programs, row)
	}
	for _, c := range s.Conditions {
		row := board.Row{Name: c.Type, State: string(c.Status), Progress: board.Done, Since: c.LastTransitionTime.Time,
			Text: strings.TrimSuffix(c.Reason+": "+c.Message, ": ")}
		is := c.Status == metav1.ConditionTrue
		switch {
		case is == (c.Type == "Degraded") && c.Type != "Progressing":
			row.Progress = board.Failed
		case is && c.Type == "Progressing":
			row.Progress = board.Running
		}
		b.Conditions = append(b.Conditions, row)
	}
	for _, p := range s.Pools {
		row := board.Row{Name: p.Pool, State: p.State, Progress: board.Running,
			Text: strings.Trim(p.Image+"; "+p.Detail, "; ")}
		switch {
		case p.State == "Degraded":
			row.Progress = board.Failed
		case !p.OptedIn:
			row.Progress = board.Pending
		case p.State == "Available":
			row.Progress = board.Done
		}
		b.Pools = append(b.Pools, row)
	}
	return withFindings(b, s)
}

func withFindings(b board.Board, s *clusterinstall.Status) board.Board {
	for _, f := range s.Findings {
		b.Notes = append(b.Notes, "finding: "+f)
	}
	return b
}

// showRollouts adds what pools and nodes do.
func showRollouts(b *board.Board, p *forecast.Plan, objects *rollout.Cluster, now time.Time) {
	records := map[string]*mcfgv1.MachineConfigNode{}
	for _, r := range objects.Records {
		records[r.Name] = r
	}
	for i := range p.Pools {
		pool := &p.Pools[i]
		at := slices.IndexFunc(b.Pools, func(r board.Row) bool { return r.Name == pool.Pool })
		if at < 0 {
			at, b.Pools = len(b.Pools), append(b.Pools, board.Row{Name: pool.Pool, State: "not layered"})
		}
		row := &b.Pools[at]
		row.Says = fmt.Sprintf("%d of %d nodes updated, %d of at most %d unavailable, %d failed", pool.Counts.Updated,
			pool.Counts.Nodes, pool.Counts.Unavailable, pool.MaxUnavailable, pool.Counts.Degraded)
		if pool.Stopped != "" {
			row.Says += "; no node starts to update: " + pool.Stopped
		}
		said := func(f string) bool { return f == pool.Stopped || endsAlike(row.Text, f) }
		row.Next = strings.Join(slices.DeleteFunc(slices.Concat(pool.Faults, pool.Complaints()), said), "; ")
		if row.Next != "" && row.Progress == "" {
			row.Progress = board.Failed
		}
		for _, v := range pool.ByUrgency() {
			b.Nodes = append(b.Nodes, nodeRow(pool.Pool, v, records[v.Node], now))
		}
	}
	if note := p.UnmanagedNote(); note != "" {
		b.Notes = append(b.Notes, note)
	}
	for _, u := range p.Unknown {
		b.Notes = append(b.Notes, "not known: "+u)
	}
	for _, r := range p.Refused {
		b.Notes = append(b.Notes, "refused: "+r)
	}
}

// endsAlike tells that a text ends with what a condition, TYPE (REASON): MESSAGE, says.
func endsAlike(text, condition string) bool {
	_, message, found := strings.Cut(condition, "): ")
	return found && strings.HasSuffix(text, message)
}

// nodeRow is a node on its way to its pool's target. Its record says since when it is in its step.
func nodeRow(pool string, v rollout.Verdict, record *mcfgv1.MachineConfigNode, now time.Time) board.Row {
	row := board.Row{Name: v.Node, Pool: pool, State: string(v.Phase), Progress: board.Pending,
		Text: v.Reason + ": " + v.Message}
	if v.Position > 0 {
		row.Text += fmt.Sprintf(" (%d. in the order)", v.Position)
	}
	switch v.Phase {
	case rollout.PhaseUpdated:
		row.Progress = board.Done
	case rollout.PhaseFailed, rollout.PhaseBlocked:
		row.Progress = board.Failed
	case rollout.PhaseUpdating, rollout.PhaseNext:
		row.Progress = board.Running
	case rollout.PhaseWaiting:
	}
	if record == nil {
		return row
	}
	for _, c := range record.Status.Conditions {
		if row.Progress == board.Running && c.Type == string(mcfgv1.MachineConfigNodeUpdateDrained) &&
			c.Status != metav1.ConditionTrue && c.Message != "" {
			row.Says = c.Reason + ": " + c.Message
		}
		if c.LastTransitionTime.After(row.Since) {
			row.Since = c.LastTransitionTime.Time
			row.Seconds = now.Sub(row.Since).Seconds()
		}
	}
	return row
}

// builds are those that run, with the step and the last line of their logs.
func builds(ctx context.Context, api client.Reader, config *rest.Config, s *clusterinstall.Status,
	all []mcfgv1.MachineOSBuild) (out []board.Row) {
	namespace := s.Namespace
	if s.Mode != cluster.Full {
		namespace = cluster.DefaultNamespace // where the Machine Config Operator builds
	}
	for i := range all {
		b, state := &all[i], machineosbuild.StateOf(&all[i])
		if !state.Active() {
			continue
		}
		row := board.Row{Name: b.Name, State: string(state), Progress: board.Running, Since: b.CreationTimestamp.Time,
			Seconds: time.Since(b.CreationTimestamp.Time).Seconds()}
		var err error
		if row.Text, row.Says, err = buildlogs.Last(ctx, api, config, namespace, b); err != nil {
			row.Text = err.Error()
		}
		out = append(out, row)
	}
	return out
}
