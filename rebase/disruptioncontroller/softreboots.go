package disruptioncontroller

import (
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/softreboot"
)

// conditionSoftReboots of a pool with the reboot policy SoftRequired is False when nodes have taken their image by a
// hard reboot, with the reasons.
const conditionSoftReboots = mcfgv1.MachineConfigPoolConditionType("SoftReboots")

// Reasons of the condition.
const (
	reasonTaken       = "Taken"
	reasonHard        = "RebootedHard"
	reasonNotRequired = "NotRequired"
)

// softReboots is the condition; nil: the pool has none and needs none.
func softReboots(pool *rollout.PoolView) *mcfgv1.MachineConfigPoolCondition {
	c := &mcfgv1.MachineConfigPoolCondition{Type: conditionSoftReboots, Status: corev1.ConditionTrue}
	if pool.Reboots() != softreboot.SoftRequired {
		had := slices.ContainsFunc(pool.Object.Status.Conditions,
			func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == conditionSoftReboots })
		if !had {
			return nil
		}
		c.Reason, c.Message = reasonNotRequired, "the pool's reboot policy does not require soft reboots"
		return c
	}
	var hard []string
	for i := range pool.Nodes {
		if why, found := strings.CutPrefix(pool.Nodes[i].Record.LastBoot, softreboot.Decision{}.String()+": "); found {
			hard = append(hard, pool.Nodes[i].Name+": "+why)
		}
	}
	if len(hard) == 0 {
		c.Reason, c.Message = reasonTaken, "no node has rebooted hard under this policy"
		return c
	}
	c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonHard, bounded(strings.Join(hard, "; "))
	return c
}
