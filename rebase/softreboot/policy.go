package softreboot

import (
	"fmt"
	"strings"

	"dayone.dev/dayone/manifests"
)

// Policy says whether nodes may take an image by a soft reboot.
type Policy string

const (
	// Hard: every reboot restarts the hardware. It is the default of pools.
	Hard Policy = "Hard"
	// SoftIfPossible: soft where the node and the image allow it, else hard.
	SoftIfPossible Policy = "SoftIfPossible"
	// SoftRequired is SoftIfPossible, and that a node rebooted hard is a condition of its pool: somebody counts on it.
	SoftRequired Policy = "SoftRequired"
)

// ParsePolicy reads a policy; empty is Hard.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(strings.TrimSpace(text)); p {
	case "", Hard:
		return Hard, nil
	case SoftIfPossible, SoftRequired:
		return p, nil
	}
	return Hard, fmt.Errorf("%q is no reboot policy: write %s, %s or %s", text, Hard, SoftIfPossible, SoftRequired)
}

// PolicyOf reads the policy of a pool, the annotation dayone.dev/reboot-policy. One that cannot be read is Hard.
func PolicyOf(annotations map[string]string) (Policy, error) {
	p, err := ParsePolicy(annotations[manifests.AnnotationRebootPolicy])
	if err != nil {
		return p, fmt.Errorf("read annotation %s: %w", manifests.AnnotationRebootPolicy, err)
	}
	return p, nil
}
