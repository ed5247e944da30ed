package nodecontroller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// conditions are what this controller says of a pool whose status is st so far. Updated and Updating mean what they
// mean with MCO, so that those who wait for them see the same. Source: MCO, pkg/controller/node/status.go.
func conditions(d *decision, st mcfgv1.MachineConfigPoolStatus) []mcfgv1.MachineConfigPoolCondition {
	node := nodeDegraded(d)
	is := updated(d, st)
	out := []mcfgv1.MachineConfigPoolCondition{
		condition(mcfgv1.MachineConfigPoolUpdated, is, "AllNodesUpdated",
			fmt.Sprintf("%d of %d nodes have %s", st.UpdatedMachineCount, d.plan.Counts.Nodes, d.plan.Target)),
		updating(d, is, d.Layered && stuck(node, st.Conditions)), node,
	}
	switch {
	case d.Doubt != "":
		out[0].Reason, out[0].Message = "NodesUnknown", d.Doubt
	case !is && d.Done(d.plan) && !builds(d):
		out[0].Reason = "NodesUnavailable"
		out[0].Message += fmt.Sprintf("; %d of them are ready", d.plan.Counts.Ready)
	case !is:
		out[0].Reason = "NodesOutstanding"
	}
	degraded := condition(mcfgv1.MachineConfigPoolDegraded, false, "AsExpected", "")
	for _, c := range append([]mcfgv1.MachineConfigPoolCondition{node}, st.Conditions...) {
		if complains(c) && (c.Type != node.Type || c == node) {
			degraded = condition(mcfgv1.MachineConfigPoolDegraded, true, string(c.Type), c.Message)
			break
		}
	}
	return append(out, degraded)
}

// updated tells that every node has the target and takes pods, and that no other image is on its way.
func updated(d *decision, st mcfgv1.MachineConfigPoolStatus) bool {
	return d.Done(d.plan) && st.ReadyMachineCount == st.MachineCount && st.UnavailableMachineCount == 0 && !builds(d)
}

// builds tells that the pool's newest build has not brought the image that the nodes have: it goes on, has failed, or
// its image is not the pool's yet.
func builds(d *decision) bool {
	b := d.Build
	if !d.Layered || b == nil {
		return false
	}
	switch {
	case at(b, mcfgv1.MachineOSBuilding), at(b, mcfgv1.MachineOSBuildPrepared), at(b, mcfgv1.MachineOSBuildFailed):
		return true
	}
	return at(b, mcfgv1.MachineOSBuildSucceeded) && string(b.Status.DigestedImagePushSpec) != d.Pool.Target.Image
}

// at tells that a build is in a state.
func at(b *mcfgv1.MachineOSBuild, state mcfgv1.BuildProgress) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, string(state))
}

// stuck tells that something other than a build makes a layered pool degraded: by MCO's word it does not update then.
func stuck(node mcfgv1.MachineConfigPoolCondition, have []mcfgv1.MachineConfigPoolCondition) bool {
	return node.Status == corev1.ConditionTrue ||
		slices.ContainsFunc(have, func(c mcfgv1.MachineConfigPoolCondition) bool {
			return c.Status == corev1.ConditionTrue && (c.Type == mcfgv1.MachineConfigPoolRenderDegraded ||
				c.Type == mcfgv1.MachineConfigPoolPinnedImageSetsDegraded)
		})
}

// complains tells that a condition, of this controller or of another, makes the pool degraded.
func complains(c mcfgv1.MachineConfigPoolCondition) bool {
	switch c.Type {
	case mcfgv1.MachineConfigPoolNodeDegraded, mcfgv1.MachineConfigPoolRenderDegraded,
		mcfgv1.MachineConfigPoolImageBuildDegraded, mcfgv1.MachineConfigPoolPinnedImageSetsDegraded:
		return c.Status == corev1.ConditionTrue
	case manifests.ConditionImageAccepted:
		return c.Status == corev1.ConditionFalse
	}
	return false
}

func condition(t mcfgv1.MachineConfigPoolConditionType, is bool, reason,
	message string) mcfgv1.MachineConfigPoolCondition {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	return mcfgv1.MachineConfigPoolCondition{Type: t, Status: status, Reason: reason, Message: message}
}

// updating says whether the pool has outstanding nodes, whether or not one of them moves just now, and what keeps those
// that wait. It is false of a pool that is paused, and of a layered one whose build has failed.
func updating(d *decision, updated, stuck bool) mcfgv1.MachineConfigPoolCondition {
	const t = mcfgv1.MachineConfigPoolUpdating
	moving, waiting := movement(d.plan)
	why := cmp.Or(d.plan.Stopped, waiting)
	if moving > 0 {
		why = strings.TrimSuffix(fmt.Sprintf("%d nodes are updating; %s", moving, why), "; ")
	}
	if d.Layered {
		b := d.Build
		switch {
		case stuck && !d.Pool.Paused:
			return condition(t, false, "Degraded", why)
		case b != nil && at(b, mcfgv1.MachineOSBuildFailed):
			return condition(t, false, "ImageBuildFailed", fmt.Sprintf("MachineOSBuild %s has failed: %s", b.Name, why))
		case b != nil && at(b, mcfgv1.MachineOSBuildInterrupted):
			return condition(t, false, "ImageBuildInterrupted", fmt.Sprintf("MachineOSBuild %s was interrupted: %s", b.Name,
				why))
		case b == nil || !at(b, mcfgv1.MachineOSBuildSucceeded):
			return condition(t, true, "ImageOutstanding", cmp.Or(why, "the next image of the pool is being built"))
		}
	}
	switch {
	case updated:
		return condition(t, false, "AllNodesUpdated", "")
	case d.Pool.Paused:
		return condition(t, false, "Paused", why)
	case moving > 0:
		return condition(t, true, "NodesMoving", why)
	case d.Building:
		return condition(t, true, "ImageOutstanding", why)
	}
	return condition(t, true, "Waiting", cmp.Or(why, unwell(d.Nodes)))
}

// movement counts the nodes on their way and says what the first of the others waits for.
func movement(p rollout.Plan) (moving int, waiting string) {
	for _, v := range p.Verdicts {
		switch {
		case v.Phase == rollout.PhaseNext || v.Phase == rollout.PhaseUpdating || v.Reason == "EarlierTarget":
			moving++
		case (v.Phase == rollout.PhaseWaiting || v.Phase == rollout.PhaseBlocked) && waiting == "":
			waiting = fmt.Sprintf("node %s %s", v.Node, v.Message)
		}
	}
	return moving, waiting
}

// unwell names a node that has the target and takes no pods.
func unwell(nodes []rollout.Node) string {
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.NotReady != "":
			return fmt.Sprintf("node %s has the target and is not ready: %s", n.Name, n.NotReady)
		case n.Cordoned:
			return fmt.Sprintf("node %s has the target and is cordoned", n.Name)
		}
	}
	return ""
}

// nodeDegraded names the nodes that gave up or whose record nobody can read, and what the admin must mend before
// anything goes on.
func nodeDegraded(d *decision) mcfgv1.MachineConfigPoolCondition {
	words := slices.Clone(d.Faults)
	named := 0
	for i := range d.Nodes {
		n := &d.Nodes[i]
		why := cmp.Or(n.Record.Reason, "no reason given")
		switch {
		case n.RecordErr != nil:
			why = n.Unreadable()
		case n.Record.State != "Degraded" && n.Record.State != "Unreconcilable":
			continue
		}
		if named++; named <= maxNamed {
			words = append(words, fmt.Sprintf("node %s: %s", n.Name, why))
		}
	}
	if named > maxNamed {
		words = append(words, fmt.Sprintf("and %d more", named-maxNamed))
	}
	if len(words) == 0 {
		return condition(mcfgv1.MachineConfigPoolNodeDegraded, false, "AsExpected", "")
	}
	return condition(mcfgv1.MachineConfigPoolNodeDegraded, true, "NodesDegraded", strings.Join(words, "; "))
}
