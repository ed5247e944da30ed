package rollout

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"

	"dayone.dev/dayone/manifests"
)

// first is the pool master where its nodes go before this pool's: the arbiter goes last, as under MCO. nil: there is no
// such pool, it is paused, or this pool is not arbiter.
func first(l *PoolView, c *Cluster) *PoolView {
	if l.Object.Name != arbiterPool {
		return nil
	}
	masters := c.View(masterPool)
	if masters == nil || masters.Pool.Paused {
		return nil
	}
	return masters
}

// toGo tells that a node is one of the pool's and was not sent to the pool's target yet.
func toGo(l *PoolView, n *Node) bool {
	return l.Objects[n.Name] != nil && n.Record.DesiredConfig != "" && n.Record.Desired() != l.Pool.Target
}

// besideArbiter applies what MCO's node controller does where the control plane has an arbiter: of masters and arbiter
// one node goes at a time, the arbiter last. Source: MCO, pkg/controller/node, syncMachineConfigPool and updatePools.
func besideArbiter(l *PoolView, c *Cluster, placement *Placement) {
	switch l.Object.Name {
	case masterPool:
		if topology(l) == configv1.HighlyAvailableArbiterMode {
			awaitArbiter(l, c, placement)
		}
	case arbiterPool:
		if why := whyArbiterWaits(c.View(masterPool)); why != "" {
			l.behindMasters = true
			l.Hold(why)
		}
	}
}

// topology is the control plane's, as MCO writes it upon its nodes; empty: it has not.
func topology(l *PoolView) configv1.TopologyMode {
	for _, n := range l.Objects {
		if said := n.Annotations[manifests.AnnotationControlPlaneTopology]; said != "" {
			return configv1.TopologyMode(said)
		}
	}
	return ""
}

// awaitArbiter notes which nodes of the pool arbiter are away: no master goes meanwhile.
func awaitArbiter(l *PoolView, c *Cluster, placement *Placement) {
	there := false
	for i := range c.Pools {
		there = there || c.Pools[i].Name == arbiterPool
	}
	if !there {
		why := "MCO updates no master: the control plane has an arbiter, and there is no pool arbiter"
		l.Faults = append(l.Faults, why)
		l.Hold(why)
	}
	p := &plannerOfMCO{}
	for _, n := range c.Nodes {
		if pool, err := placement.Pool(n); err != nil || pool == nil || pool.Name != arbiterPool {
			continue
		}
		if node := c.Memory.read(n).node; p.state(&node).away {
			l.arbiter = append(l.arbiter, n.Name)
		}
	}
}

// whyArbiterWaits says why MCO sends no node of the pool arbiter to its target; empty: it may. masters is the pool
// master; nil: there is none.
func whyArbiterWaits(masters *PoolView) string {
	if masters == nil {
		return "MCO updates pool arbiter after pool master, and there is no pool master"
	}
	if is := topology(masters); is != "" && is != configv1.HighlyAvailableArbiterMode {
		return fmt.Sprintf("MCO updates pool arbiter only where the control plane's topology is %s, and here it is %s",
			configv1.HighlyAvailableArbiterMode, is)
	}
	p := masters.plannerOfMCO()
	switch {
	case masters.Pool.Paused && len(p.away) > 0:
		return fmt.Sprintf("pool master is paused, and of its nodes these are unavailable: %s", some(p.away))
	case masters.Pool.Paused:
		return ""
	case p.stopped != "":
		return "MCO comes to pool arbiter after pool master, which waits: " + p.stopped
	case len(p.away)+p.open > 0:
		return fmt.Sprintf("the arbiter goes after the masters: %d of them are unavailable or on their way, %d are still "+
			"to go", len(p.away), p.open)
	}
	return ""
}
