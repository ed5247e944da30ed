package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// nodeAnswer is what dayone cluster why prints. docs/operators/rollout.md describes it.
type nodeAnswer struct {
	Source string    `json:"source"`
	At     time.Time `json:"at"`
	Node   string    `json:"node"`
	// Pool is empty when no pool takes the node; Fault says why.
	Pool  string `json:"pool,omitempty"`
	Fault string `json:"fault,omitempty"`
	// Verdict is the planner's.
	Verdict *rollout.Verdict `json:"verdict,omitempty"`
	// Target is the pool's; Current and Desired are the node's own.
	Target  target.Target `json:"target"`
	Current target.Target `json:"current"`
	Desired target.Target `json:"desired"`
	// State and Reason are the agent's words; Drain tells a drain that is under way.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	Drain  string `json:"drain,omitempty"`
	// InTheWay are the nodes that take the pool's places, PoolConditions what the pool complains of.
	InTheWay       []string `json:"inTheWay,omitempty"`
	PoolConditions []string `json:"poolConditions,omitempty"`
	Faults         []string `json:"faults,omitempty"`

	waiting int
}

func newWhy(c *connect.Flags) *cobra.Command {
	f := &sourceFlags{Flags: c}
	var code bool
	cmd := &cobra.Command{
		Use:   "why NODE",
		Short: "Say where a node stands on the way to its pool's target, and what it waits for",
		Long: "Why runs the planner of the node controller on a cluster or on a dump of one and explains its verdict " +
			"on one node. With --exit-code it ends " +
			"with 0 when the node has its target, 4 when it has not yet, and 5 when that needs a person.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := readNodeAnswer(cmd.Context(), f, args[0])
			if err != nil {
				return err
			}
			if err := cli.Print(cmd, a, a.print); err != nil || !code {
				return err
			}
			return a.answer()
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&code, "exit-code", false, "let the exit code be the answer")
	return cmd
}

func readNodeAnswer(ctx context.Context, f *sourceFlags, name string) (*nodeAnswer, error) {
	s, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := s.rolloutObjects(ctx)
	if err != nil {
		return nil, err
	}
	name = strings.TrimPrefix(name, "node/")
	i := slices.IndexFunc(objects.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("explain node %s: %s has no such node; the nodes are %s", name, s.name,
			someNodes(objects.Nodes))
	}
	node := objects.Nodes[i]
	a := &nodeAnswer{Source: s.name, At: s.at.UTC().Truncate(time.Second), Node: name}
	a.record(node)
	pools := make([]*mcfgv1.MachineConfigPool, 0, len(objects.Pools))
	for i := range objects.Pools {
		pools = append(pools, &objects.Pools[i])
	}
	pool, err := rollout.NewPlacement(pools).Pool(node)
	switch {
	case err != nil:
		a.Fault = err.Error()
	case pool == nil:
		a.Fault = "no pool's nodeSelector takes the node: nobody updates it"
	default:
		a.fill(planCluster(s, objects), pool)
	}
	return a, nil
}

// someNodes names nodes for somebody who mistyped one.
func someNodes(nodes []*corev1.Node) string {
	const most = 10
	names := make([]string, 0, most)
	for i := range nodes[:min(len(nodes), most)] {
		names = append(names, nodes[i].Name)
	}
	if len(nodes) > most {
		names = append(names, fmt.Sprintf("and %d more", len(nodes)-most))
	}
	return strings.Join(names, ", ")
}

// record takes over what the node's annotations say.
func (a *nodeAnswer) record(n *corev1.Node) {
	r, err := nodestate.Parse(n.Annotations)
	if err != nil {
		a.Reason = "its annotations cannot be read: " + err.Error()
		return
	}
	a.Current = target.Target{Config: r.CurrentConfig, Image: r.CurrentImage}
	a.Desired = target.Target{Config: r.DesiredConfig, Image: r.DesiredImage}
	a.State, a.Reason = string(r.State), r.Reason
	if r.DesiredDrain != "" && !r.Drained() {
		a.Drain = r.DesiredDrain + " is asked for"
		if since := n.Annotations[manifests.AnnotationDrainStarted]; since != "" {
			a.Drain += " and under way since " + since
		}
	}
}

// fill takes over what the plan says of the node and of those in its way.
func (a *nodeAnswer) fill(plan *clusterPlan, pool *mcfgv1.MachineConfigPool) {
	for i := range plan.Pools {
		p := &plan.Pools[i]
		if p.Pool != pool.Name {
			continue
		}
		a.Pool, a.Target, a.Faults, a.PoolConditions = p.Pool, p.Target, p.Faults, conditionsOf(pool)
		if v, found := p.Verdict(a.Node); found {
			a.Verdict = &v
		}
		for _, v := range p.Verdicts {
			switch v.Phase {
			case rollout.PhaseWaiting, rollout.PhaseNext:
				a.waiting++
			}
			if v.Node != a.Node && (v.Phase == rollout.PhaseUpdating || v.Phase == rollout.PhaseFailed ||
				v.Phase == rollout.PhaseBlocked || v.Reason == "EarlierTarget") {
				a.InTheWay = append(a.InTheWay, fmt.Sprintf("%s: %s (%s)", v.Node, v.Message, v.Phase))
			}
		}
		a.records(p.look)
		return
	}
	a.Fault = "pool " + pool.Name + " is being deleted"
}

// records adds the complaint of a drain that does not get on, from the node's MachineConfigNode.
func (a *nodeAnswer) records(look *rollout.Look) {
	record := look.Records[a.Node]
	if record == nil {
		return
	}
	for _, c := range record.Status.Conditions {
		if c.Type == string(mcfgv1.MachineConfigNodeUpdateDrained) && c.Status != metav1.ConditionTrue && c.Message != "" {
			a.Drain = strings.TrimPrefix(a.Drain+"; ", "; ") + c.Reason + ": " + c.Message
		}
	}
}

// answer is the verdict as an exit code.
func (a *nodeAnswer) answer() error {
	switch {
	case a.Verdict == nil, a.Verdict.Phase == rollout.PhaseFailed, a.Verdict.Phase == rollout.PhaseBlocked,
		len(a.Faults) > 0:
		return cli.Answer(cli.ExitAttention)
	case a.Verdict.Phase == rollout.PhaseUpdated:
		return cli.Answer(cli.ExitOK)
	}
	return cli.Answer(cli.ExitUnderWay)
}

func (a *nodeAnswer) print(w io.Writer) error {
	if a.Verdict == nil {
		_, err := fmt.Fprintf(w, "node %s: %s\n", a.Node, a.Fault)
		return err
	}
	v := a.Verdict
	fmt.Fprintf(w, "node %s of pool %s: %s (%s)\n", a.Node, a.Pool, v.Phase, v.Reason)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-8s %s\n", name+":", value)
		}
	}
	line("why", v.Message)
	if v.Position > 0 {
		line("place", fmt.Sprintf("%d of the %d that go now or wait", v.Position, a.waiting))
	}
	line("has", cmp.Or(a.Current.Config, "nothing that it has reported")+inImage(a.Current))
	if a.Desired != a.Current {
		line("told", cmp.Or(a.Desired.Config, "nothing")+inImage(a.Desired))
	}
	line("target", describeTarget(a.Target))
	line("agent", strings.TrimSuffix(a.State+": "+a.Reason, ": "))
	line("drain", a.Drain)
	for _, other := range a.InTheWay {
		line("others", other)
	}
	for _, fault := range slices.Concat(a.Faults, a.PoolConditions) {
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
