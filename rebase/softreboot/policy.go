package softreboot

import (
	"fmt"
	"strings"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
)

// Policy says whether nodes may take an image by a soft reboot.
type Policy string

const (
	// Unset is the policy of a pool that has none: Hard, unless the owners of the changes ask for soft reboots.
	Unset Policy = ""
	// Hard: every reboot restarts the hardware.
	Hard Policy = "Hard"
	// SoftIfPossible: soft where the node and the image allow it, else hard.
	SoftIfPossible Policy = "SoftIfPossible"
	// SoftRequired is SoftIfPossible, and that a node rebooted hard is a condition of its pool: somebody counts on it.
	SoftRequired Policy = "SoftRequired"
)

// ParsePolicy reads a policy; empty is Hard. The words of the disruption policies' grammar are understood: Reboot is
// Hard, SoftReboot is SoftIfPossible.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(strings.TrimSpace(text)); p {
	case Unset, Hard, Policy(postconfig.Reboot):
		return Hard, nil
	case SoftIfPossible, Policy(postconfig.SoftReboot):
		return SoftIfPossible, nil
	case SoftRequired:
		return p, nil
	}
	return Hard, fmt.Errorf("%q is no reboot policy: write %s or %s, %s or %s, or %s", text, Hard, postconfig.Reboot,
		SoftIfPossible, postconfig.SoftReboot, SoftRequired)
}

// PolicyOf reads the policy of a pool, the annotation dayone.dev/reboot-policy. One that cannot be read is Hard.
func PolicyOf(annotations map[string]string) (Policy, error) {
	text, found := annotations[manifests.AnnotationRebootPolicy]
	if !found {
		return Unset, nil
	}
	p, err := ParsePolicy(text)
	if err != nil {
		return p, fmt.Errorf("read annotation %s: %w", manifests.AnnotationRebootPolicy, err)
	}
	return p, nil
}
