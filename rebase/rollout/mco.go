package rollout

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
)

// underMCO finds the pool's nodes and its target by MCO's rules: it knows no windows, waves, gates nor prefetches.
func (l *PoolView) underMCO(c *Cluster, placement *Placement) {
	l.Faults = nil
	l.Pool = Pool{Name: l.Object.Name, Paused: l.Object.Spec.Paused, MaxUnavailable: l.Object.Spec.MaxUnavailable}
	if l.Pool.Name == arbiterPool {
		l.Pool.MaxUnavailable = nil
	}
	l.place(c, placement)
	l.Pool.Target.Config = l.Object.Spec.Configuration.Name
	if mosc := c.machineOSConfig(l.Object.Name); mosc != nil {
		l.layeredUnderMCO(c, mosc)
	}
	besideArbiter(l, c, placement)
}

// layeredUnderMCO finds the image of a pool that is opted in.
func (l *PoolView) layeredUnderMCO(c *Cluster, mosc *mcfgv1.MachineOSConfig) {
	l.Layered, l.machineOSConfig = true, mosc
	l.Pool.Target.Image = string(mosc.Status.CurrentImagePullSpec)
	build := c.buildForMCO(mosc, l.Pool.Target.Config)
	if wait := waitOfMCO(mosc, build, l.Pool.Target.Config); wait != "" {
		l.Building = true
		l.Hold(wait)
	}
	if build != nil && string(build.Status.DigestedImagePushSpec) != l.Pool.Target.Image {
		l.begun = build
	}
	l.rebuild = manifests.RequestsRebuild(mosc)
}

// buildForMCO is the build that MCO takes for a pool's config: the one that the MachineOSConfig's annotation names if
// it is for this config, else any that is.
func (c *Cluster) buildForMCO(mosc *mcfgv1.MachineOSConfig, config string) (out *mcfgv1.MachineOSBuild) {
	for i := range c.Builds {
		b := &c.Builds[i]
		if b.Spec.MachineConfig.Name != config || b.Spec.MachineOSConfig.Name != mosc.Name {
			continue
		}
		if b.Name == mosc.Annotations[manifests.AnnotationCurrentBuild] {
			return b
		}
		if out == nil {
			out = b
		}
	}
	return out
}

// waitOfMCO says what MCO waits for before it delivers an image with a config; empty: nothing.
func waitOfMCO(mosc *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild, config string) string {
	is := func(kind mcfgv1.BuildProgress) bool {
		return meta.IsStatusConditionTrue(build.Status.Conditions, string(kind))
	}
	switch {
	case build == nil:
		return fmt.Sprintf("the image for %s is not built yet: there is no MachineOSBuild for it", config)
	case is(mcfgv1.MachineOSBuildFailed):
		return fmt.Sprintf("MachineOSBuild %s failed, and MCO builds it again only when MachineOSConfig %s changes or a "+
			"rebuild is asked for: the pool gets no config until then", build.Name, mosc.Name)
	case is(mcfgv1.MachineOSBuildInterrupted):
		return fmt.Sprintf("MachineOSBuild %s was interrupted: ask for a rebuild upon MachineOSConfig %s", build.Name,
			mosc.Name)
	case !is(mcfgv1.MachineOSBuildSucceeded):
		return fmt.Sprintf("MachineOSBuild %s builds the image for %s", build.Name, config)
	case build.Status.DigestedImagePushSpec != mosc.Status.CurrentImagePullSpec:
		return fmt.Sprintf("MachineOSBuild %s has brought the image for %s, and MachineOSConfig %s does not name it yet",
			build.Name, config, mosc.Name)
	}
	return ""
}

// plannerOfMCO holds the state of one decision of MCO's node controller. Source: MCO, pkg/controller/node.
type plannerOfMCO struct {
	pool     Pool
	limit    int
	nodes    []Node
	verdicts []Verdict
	counts   Counts
	// away take a place of the limit, failing are at the target's config and gave up.
	away, failing []string
	next          []string
	stopped       string
	// open is how many nodes MCO has in mind for the target while there is a place, those that go now among them.
	open int
	// arbiter are nodes of the pool arbiter that are away: MCO sends no master meanwhile.
	arbiter []string
	// behindMasters: the pool is held because it goes after pool master.
	behindMasters bool
}

// planOfMCO decides as MCO's node controller does. A maxUnavailable that cannot be read becomes a fault and holds the
// pool.
func (l *PoolView) planOfMCO() Plan { return l.plannerOfMCO().plan() }

// plannerOfMCO decides, and keeps what the decision was made of.
func (l *PoolView) plannerOfMCO() *plannerOfMCO {
	p := &plannerOfMCO{pool: l.Pool, nodes: l.Nodes, verdicts: make([]Verdict, len(l.Nodes)), arbiter: l.arbiter,
		behindMasters: l.behindMasters}
	if limit, err := limitOfMCO(l.Pool.MaxUnavailable, len(l.Nodes)); err != nil {
		l.Faults = append(l.Faults, fmt.Sprintf("read maxUnavailable of pool %s: %v", l.Pool.Name, err))
		l.Hold(l.Faults[len(l.Faults)-1])
		p.pool.Hold = l.Pool.Hold
	} else {
		p.limit = limit
	}
	p.count()
	reason, stopped := p.stop(l.Building)
	var candidates []int
	for i := range p.nodes {
		switch p.settle(i); {
		case p.verdicts[i].Phase != "":
		case stopped != "":
			p.say(i, PhaseWaiting, reason, stopped)
		default:
			candidates = append(candidates, i)
		}
	}
	p.stopped = stopped
	p.choose(candidates)
	return p
}

func (p *plannerOfMCO) plan() Plan {
	slices.SortFunc(p.verdicts, func(a, b Verdict) int { return strings.Compare(a.Node, b.Node) })
	return Plan{Pool: p.pool.Name, Target: p.pool.Target, MaxUnavailable: p.limit, Next: p.next, Stopped: p.stopped,
		Verdicts: p.verdicts, Counts: p.counts}
}

// limitOfMCO is how many nodes may be unavailable: MCO rounds down, and takes 0 for 1.
func limitOfMCO(said *intstr.IntOrString, nodes int) (int, error) {
	if said == nil {
		return 1, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(said, nodes, false)
	if err == nil && n == 0 {
		n = 1
	}
	return n, err
}

// stop is why MCO starts no node at all, with a word for it.
func (p *plannerOfMCO) stop(building bool) (reason, message string) {
	switch {
	case p.pool.Paused:
		return "Paused", "the pool is paused: set spec.paused to false to go on"
	case p.pool.Target.Config == "":
		return "NotRendered", "the pool has no rendered config yet"
	case building:
		return "ImageOutstanding", p.pool.Hold
	case p.behindMasters:
		return "MastersFirst", p.pool.Hold
	case p.pool.Hold != "":
		return "PoolStopped", p.pool.Hold
	}
	return "", ""
}

// stateOfMCO is what a node's record means to MCO.
type stateOfMCO struct{ silent, targeted, done, gaveUp, failing, away bool }

// state reads a node. MCO takes one that gave up for failing only when its config differs: one that failed at an image
// alone counts as unavailable for good.
func (p *plannerOfMCO) state(n *Node) (s stateOfMCO) {
	r := &n.Record
	s.silent = n.RecordErr != nil || r.CurrentConfig == "" && r.DesiredConfig == ""
	s.targeted = r.Desired() == p.pool.Target
	s.done = r.CurrentConfig != "" && r.Current() == r.Desired() && r.State == nodestate.StateDone
	s.gaveUp = r.State == nodestate.StateDegraded || r.State == nodestate.StateUnreconcilable
	s.failing = s.gaveUp && r.CurrentConfig != r.DesiredConfig
	s.away = n.NotReady != "" || n.Cordoned || !s.done && !s.failing
	return s
}

func (p *plannerOfMCO) count() {
	p.counts.Nodes = len(p.nodes)
	for i := range p.nodes {
		n := &p.nodes[i]
		s := p.state(n)
		if s.done && s.targeted {
			p.counts.Updated++
			if !s.away {
				p.counts.Ready++
			}
		}
		if s.gaveUp {
			p.counts.Degraded++
		}
		if s.away {
			p.counts.Unavailable++
			p.away = append(p.away, n.Name)
		}
		if s.failing && s.targeted {
			p.failing = append(p.failing, n.Name)
		}
	}
}

// settle gives a verdict to a node that MCO does not think of sending to the target now.
func (p *plannerOfMCO) settle(i int) {
	n := &p.nodes[i]
	s := p.state(n)
	why := cmp.Or(n.Record.Reason, "no reason given")
	switch {
	case n.RecordErr != nil:
		p.say(i, PhaseBlocked, "RecordUnreadable", fmt.Sprintf("its annotations cannot be read: %v", n.RecordErr))
	case s.silent:
		p.say(i, PhaseBlocked, "AgentSilent", "its machine-config-daemon has not reported yet: see that it runs on it")
	case s.done && s.targeted:
		p.say(i, PhaseUpdated, "Done", "has the target")
	case s.targeted && s.failing:
		p.say(i, PhaseFailed, "NodeDegraded", fmt.Sprintf("is %s: %s", n.Record.State, why))
	case s.targeted && s.gaveUp:
		p.say(i, PhaseFailed, "NodeDegraded", fmt.Sprintf("is %s: %s; while it is, MCO counts it as unavailable",
			n.Record.State, why))
	case s.targeted && !n.Record.Drained() && strings.HasPrefix(n.Record.DesiredDrain, nodestate.Drain+"-"):
		p.say(i, PhaseUpdating, "Draining", "is drained for the target")
	case s.targeted:
		p.say(i, PhaseUpdating, cmp.Or(string(n.Record.State), "Working"), "is on its way to the target")
	case n.NotReady != "":
		p.say(i, PhaseBlocked, "NotReady", "MCO passes it over while it is not ready: "+n.NotReady)
	case n.Cordoned && s.gaveUp:
		p.say(i, PhaseBlocked, "NodeDegraded", fmt.Sprintf("is %s and cordoned, and MCO passes over cordoned nodes: "+
			"uncordon it, so that it gets the new target; its reason: %s", n.Record.State, why))
	case n.Cordoned && !s.done:
		p.say(i, PhaseWaiting, "EarlierTarget", fmt.Sprintf("still goes to %s, the new target follows then",
			n.Record.DesiredConfig))
	case n.Cordoned:
		p.say(i, PhaseBlocked, "Cordoned", "MCO passes it over while it is cordoned: uncordon it when it may be updated")
	}
}

func (p *plannerOfMCO) say(i int, phase Phase, reason, message string) {
	p.verdicts[i] = Verdict{Node: p.nodes[i].Name, Phase: phase, Reason: reason, Message: message}
}

// choose gives a verdict to the nodes that could go, in MCO's order: zone by zone, in a zone the oldest first, and of
// the control plane the operator's node last.
func (p *plannerOfMCO) choose(candidates []int) {
	if len(candidates) == 0 {
		return
	}
	slices.SortStableFunc(candidates, func(a, b int) int {
		x, y := p.nodes[a], p.nodes[b]
		x.Canary, y.Canary = false, false
		if p.pool.Name != masterPool {
			x.Deferred, y.Deferred = "", ""
		}
		return order(&x, &y)
	})
	capacity := p.limit - len(p.away)
	var reason, message string
	switch {
	case len(p.arbiter) > 0:
		reason, message = "MaxUnavailable", "MCO sends no master while a node of pool arbiter is unavailable or on its way: "+
			some(p.arbiter)
		capacity = 0
	case capacity <= 0:
		reason, message = "MaxUnavailable", fmt.Sprintf("%d nodes are unavailable or on their way, and at most %d may be: %s",
			len(p.away), p.limit, some(p.away))
	case len(p.failing) >= capacity:
		reason, message = "DegradedNode", fmt.Sprintf("MCO starts no other node while %s failed at this target: mend it, or "+
			"correct the config", some(p.failing))
		capacity = 0
	default:
		capacity -= len(p.failing)
		reason, message = "MaxUnavailable", fmt.Sprintf("others go first, and at most %d nodes may be unavailable", p.limit)
	}
	if capacity > 0 {
		p.open = len(candidates)
	}
	for at, i := range candidates {
		switch n := &p.nodes[i]; {
		case n.Deferred != "" && p.pool.Name == masterPool && len(candidates) > 1:
			p.say(i, PhaseWaiting, "Deferred", "goes last: "+n.Deferred)
		case capacity > 0:
			capacity--
			p.say(i, PhaseNext, "Turn", "is sent to the target now")
			p.next = append(p.next, n.Name)
		default:
			p.say(i, PhaseWaiting, reason, message)
		}
		p.verdicts[i].Position = at + 1
	}
}

// some names the first of many nodes.
func some(nodes []string) string {
	const most = 5
	out := strings.Join(nodes[:min(len(nodes), most)], ", ")
	if more := len(nodes) - most; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// MakesImage tells whether MCO builds an image for a config of a pool that has another one: it looks at what the node's
// kernel and packages are made of, and takes the image that is there for all other configs.
func MakesImage(was, is *mcfgv1.MachineConfig) bool {
	return was.Spec.OSImageURL != is.Spec.OSImageURL || was.Spec.KernelType != is.Spec.KernelType ||
		!reflect.DeepEqual(was.Spec.Extensions, is.Spec.Extensions) || // a list that is not there differs from an empty one
		!reflect.DeepEqual(was.Spec.KernelArguments, is.Spec.KernelArguments)
}
