package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// Cluster is what a cluster has that decides about a rollout, live or recorded. Nothing of it is changed.
type Cluster struct {
	Pools   []mcfgv1.MachineConfigPool
	Nodes   []*corev1.Node
	Configs []mcfgv1.MachineOSConfig
	Builds  []mcfgv1.MachineOSBuild
	Records []*mcfgv1.MachineConfigNode
	// Deferred are nodes that go last in their pool, with the reason.
	Deferred map[string]string
	// Foreseen lets targets wait whose effect on the nodes is not published yet.
	Foreseen bool
	// Actor is whose node controller decides; default: dayone's.
	Actor disruption.Actor
	// Memory saves reading nodes again that have not changed since the last read; nil: all are read.
	Memory *Memory
}

// Pointers gives the objects of a list as Cluster holds them.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// PoolView is one pool as the planner sees it.
type PoolView struct {
	// Pool has its target, and its hold when the target may not be delivered.
	Pool  Pool
	Nodes []Node
	// Object is the pool's own; Objects are its nodes' and Records their MachineConfigNodes, by name.
	Object  *mcfgv1.MachineConfigPool
	Objects map[string]*corev1.Node
	Records map[string]*mcfgv1.MachineConfigNode
	// Quorum are the nodes of the control plane that are not in this pool, of a pool that has some itself.
	Quorum map[string]*corev1.Node
	// Contested are the nodes of the pool master that a custom pool selects in vain, by name.
	Contested map[string]bool
	// Layered: the pool is opted in. Building: its image is waited for. PreBuilt: the admin has named the image.
	Layered, Building, PreBuilt bool
	// Build is the newest build for the pool's config, in whatever state; nil: there is none.
	Build *mcfgv1.MachineOSBuild
	// Effects is what the target does to the nodes; nil: it is not published.
	Effects *disruption.PoolPlan
	// Faults are what the admin must mend, in words.
	Faults []string
	// Doubt is why it is not known which nodes are the pool's; empty: that is known. Such a pool is held and never done.
	Doubt  string
	memory *Memory
	actor  disruption.Actor
	// machineOSConfig is the pool's, nil when it is not layered. begun is the build of an image that the pool does not
	// have yet; rebuild: one is asked for; unseen: the builder has not looked at the MachineOSConfig as it is.
	machineOSConfig *mcfgv1.MachineOSConfig
	begun           *mcfgv1.MachineOSBuild
	rebuild, unseen bool
	// arbiter are nodes of the pool arbiter that are away: MCO lets masters wait for them. behindMasters: this is the pool
	// arbiter, and it waits for the masters.
	arbiter       []string
	behindMasters bool
}

// View gathers what concerns one pool; nil: there is no such pool, or it is being deleted.
func (c *Cluster) View(pool string) *PoolView {
	l := &PoolView{Objects: make(map[string]*corev1.Node, len(c.Nodes)),
		Records: make(map[string]*mcfgv1.MachineConfigNode, len(c.Records)), memory: c.Memory}
	all := make([]*mcfgv1.MachineConfigPool, 0, len(c.Pools))
	for i := range c.Pools {
		p := &c.Pools[i]
		all = append(all, p)
		if p.Name == pool && p.DeletionTimestamp.IsZero() {
			l.Object = p
		}
	}
	if l.Object == nil {
		return nil
	}
	for _, record := range c.Records {
		l.Records[record.Name] = record
	}
	var err error
	if l.Pool, err = PoolOf(l.Object); err != nil {
		l.Faults = append(l.Faults, err.Error())
	}
	c.Memory.trim(len(c.Nodes))
	if l.actor = c.Actor; l.actor == disruption.ActorMCO {
		l.underMCO(c, NewPlacement(all))
		return l
	}
	l.place(c, NewPlacement(all))
	l.quorum(c)
	l.aim(c)
	l.foresee(c.Foreseen)
	return l
}

// quorum makes a pool with nodes of the control plane go one by one, whatever its name is, and counts those of other
// pools with it.
func (l *PoolView) quorum(c *Cluster) {
	for _, n := range l.Objects {
		l.Pool.ControlPlane = l.Pool.ControlPlane || ControlPlane(n)
	}
	if !l.Pool.ControlPlane {
		return
	}
	masters := first(l, c)
	l.Quorum = map[string]*corev1.Node{}
	for _, n := range c.Nodes {
		if l.Objects[n.Name] != nil || !ControlPlane(n) {
			continue
		}
		l.Quorum[n.Name] = n
		if node := c.Memory.read(n).node; node.away() || masters != nil && toGo(masters, &node) {
			l.Pool.Elsewhere++
		}
	}
}

// maxTwice is how many nodes in two pools a fault names: thousands may be, and what it says is written into an object.
const maxTwice = 5

// place adds the nodes that belong to the pool.
func (l *PoolView) place(c *Cluster, placement *Placement) {
	own, err := placement.doubt(l.Object.Name)
	if err != nil {
		l.Doubt = "which nodes are the pool's is not known: " + err.Error()
		l.Hold(l.Doubt)
	}
	if own { // the others wait for it to be mended there
		l.Faults = append(l.Faults, err.Error())
	}
	var twice []string
	l.Nodes = make([]Node, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		pool, err := placement.Pool(n)
		switch {
		case errors.Is(err, ErrTwoPools):
			twice = append(twice, err.Error())
		case err == nil && pool != nil && pool.Name == l.Object.Name:
			l.take(n, c)
			if pool.Name == masterPool && placement.contested(n) {
				if l.Contested == nil {
					l.Contested = map[string]bool{}
				}
				l.Contested[n.Name] = true
			}
		}
	}
	slices.Sort(twice)
	l.Faults = append(l.Faults, twice[:min(len(twice), maxTwice)]...)
	if more := len(twice) - maxTwice; more > 0 {
		l.Faults = append(l.Faults, fmt.Sprintf("and %d more nodes that more than one custom pool selects", more))
	}
}

// take adds a node.
func (l *PoolView) take(n *corev1.Node, c *Cluster) {
	l.Objects[n.Name] = n
	l.Nodes = append(l.Nodes, c.Memory.read(n).node)
	node := &l.Nodes[len(l.Nodes)-1]
	node.Deferred = c.Deferred[n.Name]
	if node.UpdatedSince = reported(l.Records[n.Name]); l.Pool.Waves.Soak > 0 && node.Record.Converged() {
		node.UpdatedSince = l.since(node)
	}
}

// reported is when a node arrived at what it has, as its agent says upon its MachineConfigNode; zero: it says nothing.
func reported(record *mcfgv1.MachineConfigNode) time.Time {
	if record == nil {
		return time.Time{}
	}
	c := meta.FindStatusCondition(record.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdated))
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// since is when a node arrived, as it says itself or, where it says nothing that can be, as the policy controller has
// noted upon it; zero: there is no note of this transition either. A clock that is behind does not shorten the time
// that a node is watched: none arrives before it got its target.
func (l *PoolView) since(node *Node) time.Time {
	h := l.History(node.Name)
	if h.Promised == nil {
		return node.UpdatedSince
	}
	sent, err := time.Parse(time.RFC3339, h.Promised.Sent)
	if err != nil || !node.UpdatedSince.IsZero() && !node.UpdatedSince.Before(sent) {
		return node.UpdatedSince
	}
	if h.Times.Sent != h.Promised.Sent {
		return time.Time{}
	}
	return sent.Add(time.Duration(h.Times.Seconds[h.Promised.Level.String()]) * time.Second)
}

// History is what is written down on one of the pool's nodes of its last transition.
func (l *PoolView) History(node string) *History { return l.memory.historyOf(l.Objects[node]) }

// Hold keeps the pool from starting nodes; the first reason stands.
func (l *PoolView) Hold(why string) { l.hold("", why) }

// hold does so with a word of its own for the verdicts.
func (l *PoolView) hold(reason, why string) {
	if l.Pool.Hold == "" {
		l.Pool.Hold, l.Pool.HoldReason = why, reason
	}
}

// Plan decides for the pool. A maxUnavailable that cannot be read becomes a fault and holds the pool.
func (l *PoolView) Plan(now time.Time) Plan {
	if l.actor == disruption.ActorMCO {
		return l.planOfMCO()
	}
	plan, err := Make(l.Pool, l.Nodes, now)
	if err == nil {
		return plan
	}
	l.Faults = append(l.Faults, err.Error())
	pool := l.Pool
	pool.Hold, pool.HoldReason, pool.MaxUnavailable = err.Error(), "", nil
	plan, _ = Make(pool, l.Nodes, now) // only maxUnavailable can fail
	return plan
}

// Done tells that every node has the pool's target; nobody can say so of a pool whose nodes are not known.
func (l *PoolView) Done(plan Plan) bool {
	return l.Doubt == "" && plan.Counts.Updated == plan.Counts.Nodes && !l.Building && plan.Target.Config != ""
}

// RefusedImage is what the node controller has written into the pool's status of the present target's image when that
// did not pass its checks; empty: it did, or was not looked at.
func (l *PoolView) RefusedImage() string {
	for _, c := range l.Object.Status.Conditions {
		if c.Type == manifests.ConditionImageAccepted && c.Status == corev1.ConditionFalse && l.Layered &&
			IsAbout(c, l.Pool.Target) {
			return c.Message
		}
	}
	return ""
}

// IsAbout tells that a pool's condition speaks of a target: its message begins with it.
func IsAbout(c mcfgv1.MachineConfigPoolCondition, t target.Target) bool {
	return strings.HasPrefix(c.Message, t.String())
}

// aim finds what the pool's nodes should have, and why they cannot have it yet.
func (l *PoolView) aim(c *Cluster) {
	l.Pool.Target.Config = l.Object.Spec.Configuration.Name
	mosc := c.machineOSConfig(l.Object.Name)
	if mosc == nil {
		return
	}
	l.Layered = true
	l.Pool.Target.Image = string(mosc.Status.CurrentImagePullSpec)
	wait := ""
	if wait, l.PreBuilt = c.imageFor(mosc, l.Pool.Target.Config); wait != "" {
		l.Building = true
		l.Hold(wait)
	}
	l.coming(c, mosc)
}

// machineOSConfig gives the pool's, nil when it is not layered. One that is being deleted has opted its pool out.
func (c *Cluster) machineOSConfig(pool string) *mcfgv1.MachineOSConfig {
	for i := range c.Configs {
		if m := &c.Configs[i]; m.Spec.MachineConfigPool.Name == pool && m.DeletionTimestamp.IsZero() {
			return m
		}
	}
	return nil
}

// imageFor says what the pool waits for before its image may be delivered together with a config; empty: nothing. An
// image may be delivered when the build that the MachineOSConfig's status names has its digest and was made for, or
// moved to, just this config. preBuilt: that build stands for an image that the admin has named.
func (c *Cluster) imageFor(mosc *mcfgv1.MachineOSConfig, config string) (wait string, preBuilt bool) {
	if mosc.Status.CurrentImagePullSpec == "" || mosc.Status.MachineOSBuild == nil {
		return "the image of the pool has not been built yet: see the conditions of MachineOSConfig " + mosc.Name, false
	}
	name := mosc.Status.MachineOSBuild.Name
	var build *mcfgv1.MachineOSBuild
	for i := range c.Builds {
		if c.Builds[i].Name == name {
			build = &c.Builds[i]
		}
	}
	switch {
	case build == nil:
		return fmt.Sprintf("MachineOSBuild %s, which made the pool's image, is gone", name), false
	case !meta.IsStatusConditionTrue(build.Status.Conditions, string(mcfgv1.MachineOSBuildSucceeded)),
		build.Status.DigestedImagePushSpec != mosc.Status.CurrentImagePullSpec:
		return fmt.Sprintf("MachineOSBuild %s has not brought the pool's image", name), false
	case build.Labels[manifests.LabelRenderedMachineConfig] != manifests.LabelValue(config):
		return fmt.Sprintf("the image for %s is not built yet: see the conditions of MachineOSConfig %s", config, mosc.Name),
			false
	}
	return "", build.Labels[manifests.AnnotationPreBuiltImage] == "true"
}
