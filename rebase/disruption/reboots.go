package disruption

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/softreboot"
)

// likelySoft is said of a node that reboots softly unless the node itself or its image is in the way.
const likelySoft = "soft (likely)"

// SoftLikely tells whether nodes that make the transition probably reboot softly.
func (t Transition) SoftLikely() bool { return strings.HasPrefix(t.Reboot, likelySoft) }

// asksSoft tells whether the owner of a change asks for a soft reboot, and names a change that reboots the node without
// asking for one.
func asksSoft(p Plan) (asked bool, other string) {
	for _, c := range p.Changes {
		switch {
		case slices.Contains(c.Actions, Action{Type: SoftReboot}):
			asked = true
		case other == "" && slices.ContainsFunc(c.Actions, Action.Reboots):
			other = fmt.Sprintf("%s %s does not ask for a soft reboot: %s", c.Kind, c.Name, c.Why)
		}
	}
	return asked, other
}

// policyFor is the reboot policy of nodes that follow the plan: the pool's, or where it has none what the owners of the
// changes ask for. Against says why that counts for nothing.
func (f Foresight) policyFor(p Plan) (policy softreboot.Policy, against string) {
	asked, other := asksSoft(p)
	switch {
	case asked && f.Reboot == softreboot.Hard:
		return softreboot.Hard, "the pool's reboot policy is Hard"
	case !asked || f.Reboot != softreboot.Unset:
		return f.Reboot, ""
	case other != "":
		return softreboot.Hard, other
	}
	return softreboot.SoftIfPossible, ""
}

// rebootOf says how a node that follows the plan reboots, as far as configs and images tell, and by which policy unless
// that is the pool's. Was is the image that it has.
func (f Foresight) rebootOf(p Plan, change ImageChange, was string) (own softreboot.Policy, said string) {
	policy, against := f.policyFor(p)
	if policy != f.Reboot && policy != softreboot.Hard {
		own = policy
	}
	kernel := p.KernelChanges()
	switch {
	case p.Level != LevelReboot:
		return "", ""
	case against != "":
		return own, "hard: " + against
	case policy == softreboot.Unset || policy == softreboot.Hard:
		return own, ""
	case f.Settings.Actor == ActorMCO:
		return own, "hard: MCO's daemon reboots the node"
	case !p.Stage && change == ImageSame:
		return own, "hard: no other image is staged"
	case len(kernel) > 0:
		return own, "hard: " + strings.Join(kernel, ", ") + " of the config change"
	case change == ImageContent:
		return own, f.byKernels(was)
	}
	return own, likelySoft
}

// byKernels compares the kernels of the image that a node has with those of the one that it is to have. A node finds
// out by the files themselves; other names are other files.
func (f Foresight) byKernels(was string) string {
	before, after := kernelsIn(f.Builds, was), kernelsIn(f.Builds, f.Target.Image)
	switch {
	case before == "" || after == "":
		return likelySoft + " if the image keeps kernel and initramfs"
	case before != after:
		return fmt.Sprintf("hard: the image has kernel %s instead of %s", after, before)
	}
	return likelySoft + ": the image keeps kernel " + after
}

// kernelNames are the names of kernels as a builder noted them: they come from an image, and are shown to people.
//
//nolint:gochecknoglobals // a constant in all but type
var kernelNames = regexp.MustCompile(`^[A-Za-z0-9._+~,-]{1,256}$`)

// kernelsIn are the kernels of an image by a build of it; empty: they are not known.
func kernelsIn(builds []mcfgv1.MachineOSBuild, image string) string {
	for i := range builds {
		names := builds[i].Annotations[manifests.AnnotationKernels]
		if image != "" && string(builds[i].Status.DigestedImagePushSpec) == image && kernelNames.MatchString(names) {
			return names
		}
	}
	return ""
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
