package disruption

import (
	"slices"
	"strings"

	"dayone.dev/dayone/rebase/softreboot"
)

// likelySoft is said of a node that reboots softly unless the node itself or its image is in the way.
const likelySoft = "soft (likely)"

// SoftLikely tells whether nodes that make the transition probably reboot softly.
func (t Transition) SoftLikely() bool { return strings.HasPrefix(t.Reboot, likelySoft) }

// rebootOf says how a node that follows the plan reboots, as far as configs and images tell.
func (f Foresight) rebootOf(p Plan, change ImageChange) string {
	switch {
	case p.Level != LevelReboot || f.Reboot == "" || f.Reboot == softreboot.Hard:
		return ""
	case f.Settings.Actor == ActorMCO:
		return "hard: MCO's daemon reboots the node"
	case !p.Stage && change == ImageSame:
		return "hard: no other image is staged"
	}
	if kernel := p.KernelChanges(); len(kernel) > 0 {
		return "hard: " + strings.Join(kernel, ", ") + " of the config change"
	}
	if change == ImageContent {
		return likelySoft + " if the image keeps kernel and initramfs"
	}
	return likelySoft
}

// describeReboots adds to the sentence of a plan how its nodes reboot, one of each kind.
func (p PoolPlan) describeReboots() string {
	var said []string
	for _, w := range p.Transitions {
		if w.Reboot != "" && !slices.Contains(said, w.Reboot) {
			said = append(said, w.Reboot)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "; reboots: " + strings.Join(said, ", ")
}
