package nodecontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// maxNamed is how many nodes a message names; the counts hold the rest.
const maxNamed = 5

// report writes the pool's status when it says something else than before. Conditions of other writers stay as they
// are: the patch bears the resource version that they were read with.
func (r *Reconciler) report(ctx context.Context, s *look, plan rollout.Plan) error {
	changed := s.Object.DeepCopy()
	st := &changed.Status
	st.ObservedGeneration = s.Object.Generation
	if s.Doubt == "" { // else the numbers are the last that were known
		st.MachineCount = int32(plan.Counts.Nodes)
		st.UpdatedMachineCount = int32(plan.Counts.Updated)
		st.ReadyMachineCount = int32(plan.Counts.Ready)
		st.UnavailableMachineCount = int32(plan.Counts.Unavailable)
		st.DegradedMachineCount = int32(plan.Counts.Degraded)
	}
	done := s.Done(plan)
	if done && !equality.Semantic.DeepEqual(st.Configuration, s.Object.Spec.Configuration) {
		st.Configuration = *s.Object.Spec.Configuration.DeepCopy()
	}
	if !s.Layered { // a pool that has opted out has no image to speak of
		st.Conditions = slices.DeleteFunc(st.Conditions,
			func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == manifests.ConditionImageAccepted })
	} else if c, news := imageAccepted(s); news {
		r.set(st, c)
	}
	for _, c := range conditions(s, plan, done, st.Conditions) {
		r.set(st, c)
	}
	if equality.Semantic.DeepEqual(s.Object.Status, *st) {
		return nil
	}
	err := r.client.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(s.Object, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		s.again(gather)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status of pool %s: %w", s.Object.Name, err)
	}
	r.unseen.note(kindPool, s.Object.ResourceVersion, changed)
	return nil
}

// set changes a condition; its time moves only with its status.
func (r *Reconciler) set(st *mcfgv1.MachineConfigPoolStatus, c mcfgv1.MachineConfigPoolCondition) {
	c.LastTransitionTime = metav1.NewTime(r.o.Now()).Rfc3339Copy()
	i := slices.IndexFunc(st.Conditions, func(have mcfgv1.MachineConfigPoolCondition) bool { return have.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if st.Conditions[i].Status == c.Status {
		c.LastTransitionTime = st.Conditions[i].LastTransitionTime
	}
	st.Conditions[i] = c
}

// conditions are what this controller says of a pool.
func conditions(s *look, plan rollout.Plan, done bool,
	have []mcfgv1.MachineConfigPoolCondition) []mcfgv1.MachineConfigPoolCondition {
	node := nodeDegraded(s)
	out := []mcfgv1.MachineConfigPoolCondition{
		condition(mcfgv1.MachineConfigPoolUpdated, done, "AllNodesUpdated",
			fmt.Sprintf("%d of %d nodes have %s", plan.Counts.Updated, plan.Counts.Nodes, plan.Target)),
		updating(s, plan, done), node,
	}
	switch {
	case s.Doubt != "":
		out[0].Reason, out[0].Message = "NodesUnknown", s.Doubt
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
		mcfgv1.MachineConfigPoolImageBuildDegraded:
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
func updating(s *look, plan rollout.Plan, done bool) mcfgv1.MachineConfigPoolCondition {
	moving, waiting := 0, ""
	for _, v := range plan.Verdicts {
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
		return condition(t, true, "NodesMoving", strings.TrimSuffix(fmt.Sprintf("%d nodes are on their way; %s", moving,
			text(plan.Stopped, waiting)), "; "))
	case s.Pool.Paused:
		return condition(t, false, "Paused", plan.Stopped)
	case s.Building:
		return condition(t, true, "ImageOutstanding", plan.Stopped)
	}
	return condition(t, false, "Waiting", text(plan.Stopped, waiting))
}

func text(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// nodeDegraded names the nodes that gave up, and what the admin must mend before anything goes on.
func nodeDegraded(s *look) mcfgv1.MachineConfigPoolCondition {
	words := slices.Clone(s.Faults)
	named := 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Record.State != "Degraded" && n.Record.State != "Unreconcilable" {
			continue
		}
		if named++; named <= maxNamed {
			words = append(words, fmt.Sprintf("node %s: %s", n.Name, text(n.Record.Reason, "no reason given")))
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
