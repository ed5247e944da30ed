package rollout

import (
	"cmp"
	"fmt"
	"time"
)

// choose gives a verdict to the candidates: who goes now, and what the others wait for.
func (p *planner) choose() {
	var reason string
	if reason, p.stopped = p.stop(); p.stopped != "" {
		p.waitAll(cmp.Or(reason, "PoolStopped"), p.stopped)
		return
	}
	quota, gate := p.quota()
	// Nodes that are down already lose nothing by being sent to another target; after them those that failed and still
	// take pods, so that a corrected target reaches them first; fresh nodes only when no other node is in doubt.
	rounds := []struct {
		concerns func(condition) bool
		used     func() int
	}{
		{func(c condition) bool { return c.failing && c.down }, nil},
		{func(c condition) bool { return c.failing && !c.down }, func() int { return p.down }},
		{func(c condition) bool { return !c.failing }, func() int { return p.taken }},
	}
	for _, round := range rounds {
		full := "" // said once: after it no place becomes free
		for _, i := range p.order {
			c := p.conditions[i]
			if p.verdicts[i].Phase != "" || !round.concerns(c) {
				continue
			}
			switch {
			case p.nodes[i].Unforeseen != "":
				p.say(i, PhaseWaiting, "NotInPlan", p.nodes[i].Unforeseen)
			case quota == 0:
				p.say(i, PhaseWaiting, "Wave", gate)
			case round.used != nil && round.used() >= p.limit:
				if full == "" {
					full = p.occupied()
				}
				p.say(i, PhaseWaiting, "MaxUnavailable", full)
			default:
				quota--
				p.start(i, c)
			}
		}
	}
}

func (p *planner) start(i int, c condition) {
	reason, message := "Turn", "is sent to the target now"
	if c.failing {
		reason, message = "Retarget", "failed at an earlier target and is sent to the new one now"
	}
	p.say(i, PhaseNext, reason, message)
	p.next = append(p.next, p.nodes[i].Name)
	if !c.down {
		p.down++
	}
	if !c.unavailable() {
		p.taken++
	}
}

// occupied says who takes the places.
func (p *planner) occupied() string {
	if p.pool.ControlPlane {
		return fmt.Sprintf("%d nodes of the control plane are unavailable or about to be, and only one may be", p.taken)
	}
	return fmt.Sprintf("%d of at most %d nodes of the pool are unavailable or about to be", p.taken, p.limit)
}

// stop is why no node at all may start now, with a word of its own where there is one.
func (p *planner) stop() (reason, why string) {
	switch {
	case p.pool.Paused:
		return "", "the pool is paused: set spec.paused to false to go on"
	case p.pool.Target.Config == "":
		return "", "the pool has no rendered config yet"
	case p.pool.Hold != "":
		return p.pool.HoldReason, p.pool.Hold
	case p.failed >= p.pool.haltAfter():
		return "", fmt.Sprintf(
			"%d nodes failed at this target: the rollout halts so that no more fail; correct the config or the image: "+
				"a new target goes to them first", p.failed)
	}
	if open, wait := p.pool.Windows.Open(p.now); !open {
		p.recheckAfter = wait
		return "", "outside the pool's maintenance windows; the next one opens at " + p.now.Add(wait).Format(time.RFC3339)
	}
	return "", ""
}

// waitAll lets every candidate wait for the same thing.
func (p *planner) waitAll(reason, message string) {
	for i := range p.verdicts {
		if p.verdicts[i].Phase == "" {
			p.say(i, PhaseWaiting, reason, message)
		}
	}
}

// quota is how many more nodes the present wave takes, and what the others wait for when that is none.
func (p *planner) quota() (int, string) {
	sizes := p.pool.Waves.sizes(len(p.nodes))
	for i, size := range sizes {
		if p.touched < size {
			return size - p.touched, fmt.Sprintf("wave %d of %d has its %d nodes: the next one starts when they are healthy",
				i+1, len(sizes), size)
		}
		if i == len(sizes)-1 {
			break
		}
		if p.counts.Updated < size {
			return 0, fmt.Sprintf("wave %d of %d: %d of %d nodes have the target, the next wave starts when all have", i+1,
				len(sizes), p.counts.Updated, size)
		}
		if wait := p.soaking(); p.touched == size && wait > 0 {
			p.recheckAfter = wait
			return 0, fmt.Sprintf("wave %d of %d has the target and is watched until %s", i+1, len(sizes), p.now.Add(wait).
				Format(time.RFC3339))
		}
		if sick := p.sick(); sick != "" {
			return 0, fmt.Sprintf("wave %d of %d has the target, but %s: the next wave starts when it is well", i+1, len(sizes),
				sick)
		}
	}
	return len(p.nodes), ""
}

// soaking is how long the nodes that have the target must still be watched. Of a node of which it is not known since
// when it has the target, all of the time is to come, and of one that says it has it since a time to come: for how long
// it does is the caller's to notice (see Arrivals).
func (p *planner) soaking() time.Duration {
	var wait time.Duration
	for i, c := range p.conditions {
		if !c.updated {
			continue
		}
		n, left := &p.nodes[i], p.pool.Waves.Soak
		if !n.UpdatedSince.IsZero() {
			left = min(left, n.UpdatedSince.Add(p.pool.Waves.Soak).Sub(p.now))
		}
		wait = max(wait, left)
	}
	return wait
}

// sick names a node that has the target and takes no pods.
func (p *planner) sick() string {
	for _, i := range p.order {
		if n := &p.nodes[i]; p.conditions[i].updated && n.NotReady != "" {
			return "node " + n.Name + " is not ready: " + n.NotReady
		}
	}
	return ""
}
