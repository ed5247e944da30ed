package rollout

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/target"
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
	if _, err := softreboot.PolicyOf(l.Object.Annotations); err != nil {
		l.Faults = append(l.Faults, err.Error()+"; nodes reboot hard")
	}
	plan, err := disruption.PoolPlanOf(l.Object.Annotations)
	if err != nil {
		l.Faults = append(l.Faults, err.Error()) // The policy controller writes it anew.
	}
	switch {
	case plan != nil && plan.Target == l.Pool.Target:
		l.Effects = plan
	case (required || gated) && l.Pool.Target.Config != "":
		l.hold("EffectUnknown", fmt.Sprintf(
			"what %s does to the nodes is not known yet: see the pool's condition EffectKnown", l.Pool.Target.Config))
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

// Reboots is the pool's reboot policy; one that cannot be read is Hard, and a fault of the pool.
func (l *PoolView) Reboots() softreboot.Policy {
	policy, err := softreboot.PolicyOf(l.Object.Annotations)
	if err != nil {
		return softreboot.Hard
	}
	return policy
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

// coming finds what the builder makes for the pool or will make.
func (l *PoolView) coming(c *Cluster, mosc *mcfgv1.MachineOSConfig) {
	l.rebuild = manifests.RequestsRebuild(mosc) || manifests.RequestsRebuild(l.Object)
	l.unseen = mosc.Generation > mosc.Status.ObservedGeneration && mosc.Status.ObservedGeneration > 0
	l.machineOSConfig = mosc
	name, brought := mosc.Annotations[manifests.AnnotationCurrentBuild], ""
	if mosc.Status.MachineOSBuild != nil {
		brought = mosc.Status.MachineOSBuild.Name
	}
	for i := range c.Builds {
		b := &c.Builds[i]
		if b.Labels[manifests.LabelRenderedMachineConfig] != manifests.LabelValue(l.Pool.Target.Config) {
			continue
		}
		if b.Name == name || b.Name == brought && l.Build == nil {
			l.Build = b
		}
		if b.Name != name {
			continue
		}
		if l.Building || string(b.Status.DigestedImagePushSpec) != l.Pool.Target.Image {
			l.begun = b
		}
	}
}

// Coming is the build of the image that the pool gets next, by what the builder has begun and what is asked of it; nil:
// none. It is known as an image that CompareImages finds among builds: by its digest, or while it is not built by
// REPOSITORY#CONTENT. known is false while the builder has not said yet what it makes.
func (l *PoolView) Coming() (build *mcfgv1.MachineOSBuild, known bool) {
	switch {
	case !l.Layered:
		return nil, true
	case l.begun != nil:
		return AsImage(l.begun), true
	case l.rebuild, l.Building && !l.AnyLayered():
		return l.Unlike(), true // whatever it is built of
	}
	return nil, !l.Building && !l.unseen
}

// AnyLayered tells whether a node of the pool has an image.
func (l *PoolView) AnyLayered() bool {
	for i := range l.Nodes {
		if l.Nodes[i].Record.CurrentImage != "" {
			return true
		}
	}
	return false
}

// MachineOSConfig is the pool's; nil when it is not layered.
func (l *PoolView) MachineOSConfig() *mcfgv1.MachineOSConfig { return l.machineOSConfig }

// Missing gives a build, or nil when the pool has its image for the present config.
func (l *PoolView) Missing(b *mcfgv1.MachineOSBuild) *mcfgv1.MachineOSBuild {
	if !l.Building && string(b.Status.DigestedImagePushSpec) == l.Pool.Target.Image {
		return nil
	}
	return b
}

// Unlike is a build whose image differs from every other.
func (l *PoolView) Unlike() *mcfgv1.MachineOSBuild {
	b := &mcfgv1.MachineOSBuild{}
	b.Spec.RenderedImagePushSpec = l.machineOSConfig.Spec.RenderedImagePushSpec
	return AsImage(b)
}

// Unbuilt is in the name of an image that is not built yet, between its repository and what it is built of.
const Unbuilt = "#"

// addressDigits are enough of a content address for people to tell two images of a pool apart.
const addressDigits = 12

// AsImage gives a build a name for its image, unless it has brought one: REPOSITORY#CONTENT.
func AsImage(b *mcfgv1.MachineOSBuild) *mcfgv1.MachineOSBuild {
	if b.Status.DigestedImagePushSpec != "" &&
		meta.IsStatusConditionTrue(b.Status.Conditions, string(mcfgv1.MachineOSBuildSucceeded)) {
		return b
	}
	repository := string(b.Spec.RenderedImagePushSpec)
	if at := strings.LastIndexByte(repository, ':'); at > strings.LastIndexByte(repository, '/') {
		repository = repository[:at]
	}
	content := b.Annotations[manifests.AnnotationBuildAddress]
	if content == "" {
		content = "new"
	}
	name := repository + Unbuilt + content[:min(len(content), addressDigits)]
	out := b.DeepCopy()
	out.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(name)
	return out
}

// With is the pool's target when an image that is coming is there, and all builds by which images are compared.
func (l *PoolView) With(coming *mcfgv1.MachineOSBuild, builds []mcfgv1.MachineOSBuild) (target.Target,
	[]mcfgv1.MachineOSBuild) {
	to := l.Pool.Target
	if coming == nil {
		return to, builds
	}
	to.Image = string(coming.Status.DigestedImagePushSpec)
	return to, append(builds[:len(builds):len(builds)], *coming)
}

// NodeStates is what the pool's nodes have, by name; a node that has not reported is left out.
func (l *PoolView) NodeStates() map[string]target.Target {
	out := make(map[string]target.Target, len(l.Nodes))
	for i := range l.Nodes {
		n := &l.Nodes[i]
		if n.RecordErr == nil && n.Record.CurrentConfig != "" {
			out[n.Name] = n.Record.Current()
		}
	}
	return out
}
