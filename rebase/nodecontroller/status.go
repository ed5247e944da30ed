package nodecontroller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// maxNamed is how many nodes a message names; the counts hold the rest.
const maxNamed = 5

// writeStatus writes the pool's status when it says something new. Conditions of other writers stay as they are: the
// patch bears the resource version that they were read with.
func writeStatus(ctx context.Context, w *writer, d *decision) (time.Duration, error) {
	changed := d.Object.DeepCopy()
	changed.Status = status(d, w.now())
	if equality.Semantic.DeepEqual(d.Object.Status, changed.Status) {
		return 0, nil
	}
	err := w.client.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(d.Object, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return gather, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write status of pool %s: %w", d.Object.Name, err)
	}
	w.unseen.note(kindPool, d.Object.ResourceVersion, changed)
	return 0, nil
}

// status is the pool's status with what this controller says of it.
func status(d *decision, now time.Time) mcfgv1.MachineConfigPoolStatus {
	st := *d.Object.Status.DeepCopy()
	st.ObservedGeneration = d.Object.Generation
	if d.Doubt == "" { // else the numbers are the last that were known
		st.MachineCount = int32(d.plan.Counts.Nodes)
		st.UpdatedMachineCount = int32(d.plan.Counts.Updated)
		st.ReadyMachineCount = int32(d.plan.Counts.Ready)
		st.UnavailableMachineCount = int32(d.plan.Counts.Unavailable)
		st.DegradedMachineCount = int32(d.plan.Counts.Degraded)
	}
	done := d.Done(d.plan)
	if done && !equality.Semantic.DeepEqual(st.Configuration, d.Object.Spec.Configuration) {
		st.Configuration = *d.Object.Spec.Configuration.DeepCopy()
	}
	if !d.Layered { // a pool that has opted out has no image to speak of
		st.Conditions = slices.DeleteFunc(st.Conditions,
			func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == manifests.ConditionImageAccepted })
	} else if c, found := imageAccepted(d); found {
		manifests.SetPoolCondition(&st.Conditions, c, now)
	}
	if c, ok := pinsDegraded(d); ok {
		manifests.SetPoolCondition(&st.Conditions, c, now)
	}
	for _, c := range conditions(d, done, st.Conditions) {
		manifests.SetPoolCondition(&st.Conditions, c, now)
	}
	return st
}

// conditions are what this controller says of a pool.
func conditions(d *decision, done bool,
	have []mcfgv1.MachineConfigPoolCondition) []mcfgv1.MachineConfigPoolCondition {
	node := nodeDegraded(d)
	out := []mcfgv1.MachineConfigPoolCondition{
		condition(mcfgv1.MachineConfigPoolUpdated, done, "AllNodesUpdated",
			fmt.Sprintf("%d of %d nodes have %s", d.plan.Counts.Updated, d.plan.Counts.Nodes, d.plan.Target)),
		updating(d, done), node,
	}
	switch {
	case d.Doubt != "":
		out[0].Reason, out[0].Message = "NodesUnknown", d.Doubt
	case !done:
		out[0].Reason = "NodesOutstanding"
	}
	degraded := condition(mcfgv1.MachineConfigPoolDegraded, false, "AsExpected", "")
	for _, c := range append([]mcfgv1.MachineConfigPoolCondition{node}, have...) {
		if complains(c) && (c.Type != node.Type || c == node) {
			degraded = condition(mcfgv1.MachineConfigPoolDegraded, true, string(c.Type), c.Message)
			break
		}
	}
	return append(out, degraded)
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

// updating says whether something moves, and what keeps the rest.
func updating(d *decision, done bool) mcfgv1.MachineConfigPoolCondition {
	moving, waiting := 0, ""
	for _, v := range d.plan.Verdicts {
		switch {
		case v.Phase == rollout.PhaseNext || v.Phase == rollout.PhaseUpdating || v.Reason == "EarlierTarget":
			moving++
		case (v.Phase == rollout.PhaseWaiting || v.Phase == rollout.PhaseBlocked) && waiting == "":
			waiting = fmt.Sprintf("node %s %s", v.Node, v.Message)
		}
	}
	t := mcfgv1.MachineConfigPoolUpdating
	switch {
	case done:
		return condition(t, false, "AllNodesUpdated", "")
	case moving > 0:
		return condition(t, true, "NodesMoving", strings.TrimSuffix(fmt.Sprintf("%d nodes are updating; %s", moving,
			cmp.Or(d.plan.Stopped, waiting)), "; "))
	case d.Pool.Paused:
		return condition(t, false, "Paused", d.plan.Stopped)
	case d.Building:
		return condition(t, true, "ImageOutstanding", d.plan.Stopped)
	}
	return condition(t, false, "Waiting", cmp.Or(d.plan.Stopped, waiting))
}

// nodeDegraded names the nodes that gave up, and what the admin must mend before anything goes on.
func nodeDegraded(d *decision) mcfgv1.MachineConfigPoolCondition {
	words := slices.Clone(d.Faults)
	named := 0
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Record.State != "Degraded" && n.Record.State != "Unreconcilable" {
			continue
		}
		if named++; named <= maxNamed {
			words = append(words, fmt.Sprintf("node %s: %s", n.Name, cmp.Or(n.Record.Reason, "no reason given")))
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
