package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/bootstrap/gather/buildlogs"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/fleet/snapshot"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/target"
)

// failedBuild is a pool's newest build when that failed: nodes get no new image until it is mended.
type failedBuild struct {
	MachineOSBuild string `json:"machineOSBuild"`
	*build.Failure
}

// nodeAnswer and poolAnswer are what why prints as JSON.
type (
	nodeAnswer struct {
		*forecast.Node
		FailedBuild *failedBuild `json:"failedBuild,omitempty"`
	}
	poolAnswer struct {
		*forecast.Plan
		FailedBuild *failedBuild `json:"failedBuild,omitempty"`
	}
)

func newWhy(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	var code bool
	cmd := &cobra.Command{
		Use:   "why NODE|POOL",
		Short: "Explain how far the update of a node or a pool is and what it waits for",
		Long: "Why runs the planner of the node controller on a cluster or on a dump of one and explains its verdict " +
			"on one node, or on the nodes of one pool: node/NAME and pool/NAME say which, where both have one name. If the " +
			"pool's newest build has failed it says why, and what to do next. With --exit-code it exits with 0 when the node " +
			"or the pool has its target, 4 when it is still to update, and 5 when a person must act.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.Argument(connect.Nodes(), connect.Pools()),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, at, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			in, err := s.Read(cmd.Context(), at)
			if err != nil {
				return err
			}
			answer := whyNode
			name, isPool := poolNamed(in, args[0])
			if isPool {
				answer = whyPool
			}
			progress, err := answer(cmd, asked{f.Namespace, s, in, name})
			if err != nil || !code {
				return err
			}
			return exitOf(progress)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&code, "exit-code", false, "make the exit code the answer")
	return cmd
}

// asked is a question about a node or a pool.
type asked struct {
	// namespace is dayone's.
	namespace string
	from      *snapshot.Source
	in        forecast.Input
	name      string
}

// poolNamed tells whether the argument means a pool: a node of that name comes first.
func poolNamed(in forecast.Input, text string) (name string, is bool) {
	for _, prefix := range []string{"pool/", "machineconfigpool/", "mcp/"} {
		if name, is = strings.CutPrefix(text, prefix); is {
			return name, true
		}
	}
	for _, n := range in.Cluster.Nodes {
		if n.Name == text {
			return text, false
		}
	}
	for i := range in.Cluster.Pools {
		if in.Cluster.Pools[i].Name == text {
			return text, true
		}
	}
	return text, false
}

// failed is the failed build of a pool. One of a MachineOSConfig that is not opted in belongs to an earlier wish: it is
// something else that must be mended.
func (q asked) failed(ctx context.Context, pool string) (*failedBuild, error) {
	for i := range q.in.Cluster.Configs {
		c := &q.in.Cluster.Configs[i]
		if c.Spec.MachineConfigPool.Name == pool && meta.IsStatusConditionFalse(c.Status.Conditions,
			manifests.ConditionOptedIn) {
			return nil, nil
		}
	}
	f, name, err := buildlogs.Failed(ctx, q.from, q.namespace, pool, q.in.Cluster.Builds)
	if err != nil || f == nil {
		return nil, err
	}
	return &failedBuild{name, f}, nil
}

func whyNode(cmd *cobra.Command, q asked) (forecast.Progress, error) {
	n, err := forecast.Why(q.in, q.name)
	if err != nil {
		return 0, err
	}
	b, err := q.failed(cmd.Context(), n.Pool)
	if err != nil {
		return 0, err
	}
	progress := n.Progress()
	if b != nil {
		progress = forecast.Attention
	}
	return progress, cli.Print(cmd, "NodeExplanation", nodeAnswer{n, b}, func(w io.Writer) error {
		w = cli.Prose(w)
		if err := writeNode(w, n); err != nil {
			return err
		}
		return writeFailed(w, n.Pool, b)
	})
}

func whyPool(cmd *cobra.Command, q asked) (forecast.Progress, error) {
	p, err := forecast.Of(q.in)
	if err == nil {
		err = p.Only(q.name)
	}
	if err != nil {
		return 0, err
	}
	b, err := q.failed(cmd.Context(), q.name)
	if err != nil {
		return 0, err
	}
	progress := p.Progress()
	if b != nil {
		progress = forecast.Attention
	}
	return progress, cli.Print(cmd, "PoolExplanation", poolAnswer{p, b}, func(w io.Writer) error {
		w = cli.Prose(w)
		if err := writeRollouts(w, p); err != nil {
			return err
		}
		return writeFailed(w, q.name, b)
	})
}

// writeFailed says why a build failed, and what to do.
func writeFailed(w io.Writer, pool string, b *failedBuild) error {
	if b == nil {
		return nil
	}
	fmt.Fprintf(w, "MachineOSBuild %s failed (%s): %s\n", b.MachineOSBuild, b.Class, b.Message)
	if b.Line > 0 {
		place := fmt.Sprintf("line %d of the Containerfile: %s", b.Line, b.Instruction)
		fmt.Fprintf(w, "  place:   %s\n", strings.TrimSuffix(place, ": "))
	}
	if b.Next != "" {
		fmt.Fprintf(w, "  next:    %s\n", b.Next)
	}
	_, err := fmt.Fprintf(w, "  log:     dayone cluster logs %s\n", pool)
	return err
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
	line("agent", strings.TrimPrefix(strings.TrimSuffix(n.State+": "+n.Reason, ": "), ": "))
	line("drain", n.Drain)
	line("reboots", describeReboots(n))
	for _, other := range n.InTheWay {
		line("others", other)
	}
	for _, fault := range slices.Concat(n.Faults, n.PoolConditions) {
		line("pool", fault)
	}
	return nil
}

// describeReboots says how the node reboots, and why not softly.
func describeReboots(n *forecast.Node) string {
	var out []string
	for _, part := range []struct{ words, value string }{{"policy ", string(n.RebootPolicy)}, {"next ", n.Reboots},
		{"the agent found ", n.SoftReboot}, {"last ", n.LastBoot}} {
		if part.value != "" {
			out = append(out, part.words+part.value)
		}
	}
	return strings.Join(out, "; ")
}

func inImage(t target.Target) string {
	if t.Image == "" {
		return ""
	}
	return " in image " + t.Image
}
