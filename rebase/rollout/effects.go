package rollout

import (
	"fmt"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
)

// foresee takes what the policy controller published of the target's effect, and holds a target whose effect is worse than the pool's
// gate allows, or is not known although it must be.
func (l *Look) foresee(required bool) {
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
	target := disruption.State(l.Pool.Target)
	switch {
	case plan != nil && plan.Target == target:
		l.Effects = plan
	case (required || gated) && target.Config != "":
		l.Hold(fmt.Sprintf("what %s does to the nodes is not known yet: see the pool's condition EffectKnown", target.Config))
		return
	default:
		return
	}
	if gated && plan.Level > limit {
		l.Hold(fmt.Sprintf("%s means %s for %d nodes, and annotation %s allows %s: change the annotation, the config or the policies",
			target.Config, plan.Level, plan.Nodes, manifests.AnnotationMaxDisruption, limit))
	}
}
