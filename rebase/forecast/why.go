package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/target"
)

// Node says where a node stands. docs/operators/rollout.md describes it.
type Node struct {
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
	// State and Reason are what the agent reports; Drain describes a drain that is under way.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	Drain  string `json:"drain,omitempty"`
	// RebootPolicy is the pool's, absent where it is Hard. SoftReboot is what the agent found of it before the last drain,
	// and LastBoot how the node came into what it runs: "soft", or "hard: REASON". Reboots is the forecast for the way to
	// the target.
	RebootPolicy softreboot.Policy `json:"rebootPolicy,omitempty"`
	SoftReboot   string            `json:"softReboot,omitempty"`
	LastBoot     string            `json:"lastBoot,omitempty"`
	Reboots      string            `json:"reboots,omitempty"`
	// InTheWay are the nodes that take the pool's places, PoolConditions what the pool complains of.
	InTheWay       []string `json:"inTheWay,omitempty"`
	PoolConditions []string `json:"poolConditions,omitempty"`
	Faults         []string `json:"faults,omitempty"`
	// Waiting is how many nodes of the pool go now or wait.
	Waiting int `json:"-"`

	// coming: the pool gets another image. stale: the pool's target is not what was asked for, because that cannot be
	// rendered or built.
	coming, stale bool
}

// Why says where a node stands in the transition to its pool's target, and what it waits for.
func Why(in Input, name string) (*Node, error) {
	name = strings.TrimPrefix(name, "node/")
	i := slices.IndexFunc(in.Cluster.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, neither(in, name)
	}
	node := in.Cluster.Nodes[i]
	out := &Node{Source: in.Source, At: in.At.UTC().Truncate(time.Second), Node: name}
	out.report(node)
	pool, err := placementOf(in.Cluster).Pool(node)
	switch {
	case err != nil:
		out.Fault = err.Error()
		return out, nil
	case pool == nil:
		out.Fault = noPool
		return out, nil
	}
	all := planPools(in).Pools
	at := slices.IndexFunc(all, func(p Pool) bool { return p.Pool == pool.Name })
	if at < 0 {
		out.Fault = "pool " + pool.Name + " is being deleted"
		return out, nil
	}
	out.place(&all[at])
	out.PoolConditions = degraded(pool)
	out.stale = slices.ContainsFunc(pool.Status.Conditions, func(c mcfgv1.MachineConfigPoolCondition) bool {
		return c.Status == corev1.ConditionTrue &&
			(c.Type == mcfgv1.MachineConfigPoolImageBuildDegraded || c.Type == mcfgv1.MachineConfigPoolRenderDegraded)
	})
	return out, nil
}

// noPool is what is wrong with a node that no pool takes.
const noPool = "no pool's nodeSelector takes the node: no pool updates it"

// placementOf tells which pool takes a node.
func placementOf(c *rollout.Cluster) *rollout.Placement {
	pools := make([]*mcfgv1.MachineConfigPool, 0, len(c.Pools))
	for i := range c.Pools {
		pools = append(pools, &c.Pools[i])
	}
	return rollout.NewPlacement(pools)
}

// Progress is how far the node is.
func (n *Node) Progress() Progress {
	switch {
	case n.Verdict == nil, stuck(n.Verdict.Phase), len(n.Faults) > 0, n.stale:
		return Attention
	case n.Verdict.Phase == rollout.PhaseUpdated && !n.coming:
		return Done
	}
	return UnderWay
}

// neither says that a name is none of the cluster's: whoever asks may have meant a node or a pool.
func neither(in Input, name string) error {
	nodes, pools := make([]string, 0, len(in.Cluster.Nodes)), make([]string, 0, len(in.Cluster.Pools))
	for _, n := range in.Cluster.Nodes {
		nodes = append(nodes, n.Name)
	}
	for i := range in.Cluster.Pools {
		pools = append(pools, in.Cluster.Pools[i].Name)
	}
	return fmt.Errorf("explain %s: %s has no such node and no such pool; the nodes are %s; the pools are %s", name,
		in.Source, some(nodes), some(pools))
}

// some are the first of the names, and how many more there are.
func some(names []string) string {
	const most = 10
	names = slices.Sorted(slices.Values(names))
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// report adds what the node's annotations say.
func (n *Node) report(node *corev1.Node) {
	r, err := nodestate.Parse(node.Annotations)
	if err != nil {
		n.Reason = "its annotations cannot be read: " + err.Error()
		return
	}
	n.Current, n.Desired = r.Current(), r.Desired()
	n.State, n.Reason = string(r.State), r.Reason
	n.SoftReboot, n.LastBoot = r.SoftReboot, r.LastBoot
	if r.DesiredDrain != "" && !r.Drained() {
		n.Drain = r.DesiredDrain + " is asked for"
		if since := node.Annotations[manifests.AnnotationDrainStarted]; since != "" {
			n.Drain += " and under way since " + since
		}
	}
}

// place adds what the pool's plan says of the node and of those in its way.
func (n *Node) place(p *Pool) {
	n.Pool, n.Target, n.Faults, n.coming = p.Pool, p.Target, p.Faults, p.Coming != ""
	if policy := p.view.Reboots(); policy != softreboot.Hard {
		n.RebootPolicy = policy
	}
	if plan := p.view.Effects; plan != nil {
		w, _ := plan.Transition(n.Current)
		n.Reboots = w.Reboot
	}
	if v, found := p.Verdict(n.Node); found {
		n.Verdict = &v
	}
	for _, v := range p.Verdicts {
		if v.Phase == rollout.PhaseWaiting || v.Phase == rollout.PhaseNext {
			n.Waiting++
		}
		if v.Node != n.Node && (v.Phase == rollout.PhaseUpdating || stuck(v.Phase) || v.Reason == "EarlierTarget") {
			n.InTheWay = append(n.InTheWay, fmt.Sprintf("%s: %s (%s)", v.Node, v.Message, v.Phase))
		}
	}
	n.complain(p.view.Records[n.Node])
}

// complain adds what the drain says that does not get on.
func (n *Node) complain(record *mcfgv1.MachineConfigNode) {
	if record == nil || n.Drain == "" {
		return
	}
	for _, c := range record.Status.Conditions {
		if c.Type == string(mcfgv1.MachineConfigNodeUpdateDrained) && c.Status != metav1.ConditionTrue && c.Message != "" {
			n.Drain = strings.TrimPrefix(n.Drain+"; ", "; ") + c.Reason + ": " + c.Message
		}
	}
}
