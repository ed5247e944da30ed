package nodecontroller

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// Reasons of events on pools, which are MCO's. Source: MCO, pkg/controller/node. Each stands for one write of this
// controller, or for one change of a node of the control plane: none is told again while nothing changes.
const (
	eventTarget      = "SetDesiredConfig"
	eventTargetImage = "SetDesiredConfigAndOSImage"
	eventDeferred    = "DeferringOperatorNodeUpdate"
	eventUpdating    = "Updating"
	eventCompleted   = "Completed"
	eventSelects     = "SelectingAll"
	eventAnnotation  = "AnnotationChange"
)

// tellTargets tells which nodes were sent to the target, and that the controller's own node waits for the others.
func tellTargets(to events.EventRecorder, d *decision, targeted []string) {
	reason := eventTarget
	if d.plan.Target.Image != "" {
		reason = eventTargetImage
	}
	tell(to, d.Object, corev1.EventTypeNormal, reason, "sent to %s: %s", d.plan.Target, listed(targeted))
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if v, _ := d.plan.Verdict(n.Name); n.Deferred != "" && v.Phase == rollout.PhaseWaiting {
			tell(to, d.Object, corev1.EventTypeNormal, eventDeferred, "node %s goes last: %s", n.Name, n.Deferred)
		}
	}
}

// tellStatus tells what a new status of the pool means.
func tellStatus(to events.EventRecorder, d *decision, now *mcfgv1.MachineConfigPool) {
	before := d.Object
	began := isTrue(now, mcfgv1.MachineConfigPoolUpdating) && !isTrue(before, mcfgv1.MachineConfigPoolUpdating)
	switch {
	case now.Status.Configuration.Name != before.Status.Configuration.Name:
		tell(to, now, corev1.EventTypeNormal, eventCompleted, "all nodes have %s", d.plan.Target)
	case began && !d.Done(d.plan):
		tell(to, now, corev1.EventTypeNormal, eventUpdating, "the nodes go to %s", d.plan.Target)
	}
	selector := before.Spec.NodeSelector
	if before.Generation != before.Status.ObservedGeneration && selector != nil && len(selector.MatchLabels) == 0 &&
		len(selector.MatchExpressions) == 0 {
		tell(to, now, corev1.EventTypeWarning, eventSelects,
			"the node selector is empty and would select all nodes: it selects none until it names labels")
	}
}

func tell(to events.EventRecorder, pool *mcfgv1.MachineConfigPool, kind, reason, format string, args ...any) {
	to.Eventf(pool, nil, kind, reason, "Tell", format, args...)
}

func isTrue(p *mcfgv1.MachineConfigPool, t mcfgv1.MachineConfigPoolConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// toldAnnotations are those of a node of the control plane whose changes are told.
var toldAnnotations = [...]string{ //nolint:gochecknoglobals // a constant in all but type
	manifests.AnnotationCurrentConfig, manifests.AnnotationDesiredConfig, manifests.AnnotationState,
	manifests.AnnotationReason, manifests.AnnotationCurrentImage, manifests.AnnotationDesiredImage,
}

// tellChanges tells how the record of a node of the pool master has changed; nobody counts those of thousands of
// workers.
func tellChanges(to events.EventRecorder, pool *mcfgv1.MachineConfigPool, before, after *corev1.Node) {
	if to == nil || before == nil || after == nil || pool == nil || pool.Name != masterPool {
		return
	}
	for _, key := range toldAnnotations {
		old, was := before.Annotations[key]
		now, is := after.Annotations[key]
		message := fmt.Sprintf("node %s now has %s=%s", after.Name, key, now)
		switch {
		case old == now && was == is:
			continue
		case !is:
			message = fmt.Sprintf("node %s no longer has %s", after.Name, key)
		}
		to.Eventf(pool, after, corev1.EventTypeNormal, eventAnnotation, "Tell", "%s", message)
	}
}

// listed names some nodes and counts the rest.
func listed(nodes []string) string {
	if len(nodes) <= maxNamed {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:maxNamed], ", "), len(nodes)-maxNamed)
}
