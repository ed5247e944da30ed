package manifests

import (
	"slices"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetPoolCondition puts a condition among those of a pool and reports whether that changed anything. The condition's
// transition time moves only with its status; it has no fraction of a second, as the API stores it.
func SetPoolCondition(conditions *[]mcfgv1.MachineConfigPoolCondition, c mcfgv1.MachineConfigPoolCondition,
	now time.Time) bool {
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	i := slices.IndexFunc(*conditions, func(have mcfgv1.MachineConfigPoolCondition) bool { return have.Type == c.Type })
	if i < 0 {
		*conditions = append(*conditions, c)
		return true
	}
	have := &(*conditions)[i]
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	if *have == c {
		return false
	}
	*have = c
	return true
}
