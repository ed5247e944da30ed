package rollout

import (
	"fmt"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// foresee takes what the policy controller published of the target's effect, and holds a target whose effect is worse
// than the pool's gate allows, or is not known although it must be.
func (l *PoolView) foresee(required bool) {
	limit, gated, err := disruption.MaxDisruption(l.Object.Annotations)
	if err != nil {
		l.Faults = append(l.Faults, err.Error())
		l.Hold(err.Error())
		return
	}
	plan, err := disruption.PoolPlanOf(l.Object.Annotations)
	if err != nil {
		l.Faults = append(l.Faults, err.Error()) // The policy controller writes it anew.
	}
	switch {
	case plan != nil && plan.Target == l.Pool.Target:
		l.Effects = plan
	case (required || gated) && l.Pool.Target.Config != "":
		l.Hold(fmt.Sprintf("what %s does to the nodes is not known yet: see the pool's condition EffectKnown",
			l.Pool.Target.Config))
		return
	default:
		return
	}
	if gated && plan.Level > limit {
		l.Hold(fmt.Sprintf(
			"%s means %s for %d nodes, and annotation %s allows %s: change the annotation, the config or the policies",
			l.Pool.Target.Config, plan.Level, plan.Nodes, manifests.AnnotationMaxDisruption, limit))
	}
	for i := range l.Nodes {
		l.Nodes[i].Unforeseen = unforeseen(plan, l.Nodes[i].Record)
	}
}

// unforeseen is why a node cannot go to a plan's target: its transition is not in the plan, which holds those of most
// nodes and is computed again when they are done. Empty: it can. One that has the target, and gave up on the way to
// another, needs no transition.
func unforeseen(plan *disruption.PoolPlan, r nodestate.Record) string {
	has := r.Current()
	if has == plan.Target {
		return ""
	}
	if _, found := plan.Transition(has); found {
		return ""
	}
	return fmt.Sprintf("the transition from %s is not in the pool's plan yet: its turn comes when other nodes are done",
		has)
}
