package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/rollout"
)

const (
	// maxMarks is how many nodes one reconciliation marks. The next one follows soon; a rollout of thousands of nodes does
	// not wait until all that wait are marked.
	maxMarks = 50
)

// mark keeps what others read upon the pool's nodes, as MCO does: the topology of the control plane, and the taint of
// those that wait for their turn, so that pods prefer nodes that do not have to be drained soon.
func mark(ctx context.Context, w *writer, d *decision) (time.Duration, error) {
	topology, err := fleet.Topology(ctx, w.client)
	if err != nil {
		return 0, err
	}
	var errs []error
	var retry time.Duration
	left := maxMarks
	for i := range d.Nodes {
		n := d.Objects[d.Nodes[i].Name]
		change, news := marks(d, &d.Nodes[i], n, string(topology))
		if !news {
			continue
		}
		if left--; left < 0 {
			return gather, errors.Join(errs...)
		}
		written, err := w.changeNode(ctx, n.Name, change)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			retry = gather // an agent, an admin or another step has changed the node meanwhile
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("mark node %s: %w", n.Name, err))
			continue
		}
		w.unseen.note(kindNode, n.ResourceVersion, written)
	}
	return retry, errors.Join(errs...)
}

// marks is what a node's marks must change to; false: they are right.
func marks(d *decision, node *rollout.Node, n *corev1.Node, topology string) (nodeChange, bool) {
	change := nodeChange{Metadata: nodeMeta{ResourceVersion: n.ResourceVersion}}
	news := topology != "" && n.Annotations[manifests.AnnotationControlPlaneTopology] != topology
	if news {
		change.Metadata.Annotations = map[string]*string{manifests.AnnotationControlPlaneTopology: &topology}
	}
	rest, tainted := without(n.Spec.Taints)
	want, known := waits(d, node)
	if !known || want == tainted {
		return change, news
	}
	if want {
		rest = append(rest, corev1.Taint{Key: manifests.TaintUpdateInProgress, Effect: corev1.TaintEffectPreferNoSchedule})
	}
	change.Spec = map[string]any{"taints": rest}
	return change, true
}

// waits tells whether a node must go to the pool's target and was not sent yet. It is not known, and the taint stays as
// it is, while the pool is paused or its image is outstanding, of a node that is just being sent, and of one without a
// record.
func waits(d *decision, n *rollout.Node) (is, known bool) {
	if d.Pool.Paused || d.Building || d.Doubt != "" || slices.Contains(d.plan.Next, n.Name) {
		return false, false
	}
	if n.RecordErr != nil || n.Record.DesiredConfig == "" {
		return false, false
	}
	return n.Record.Desired() != d.Pool.Target, true
}

// without gives a node's taints but for the one of nodes that wait; found: it was among them.
func without(taints []corev1.Taint) (rest []corev1.Taint, found bool) {
	rest = []corev1.Taint{}
	for _, t := range taints {
		if t.Key == manifests.TaintUpdateInProgress && t.Effect == corev1.TaintEffectPreferNoSchedule {
			found = true
			continue
		}
		rest = append(rest, t)
	}
	return rest, found
}

// labelForPool gives a node that has booted for a custom pool the labels by which the pool selects it, before it could
// be sent back to what another pool has. It is done once in a node's life; what an administrator changes later stays.
func labelForPool(ctx context.Context, w *writer, n *corev1.Node) (bool, error) {
	_, before := n.Annotations[manifests.AnnotationCustomPoolLabelsApplied]
	first := n.Annotations[manifests.AnnotationFirstPivotConfig]
	if before || first == "" {
		return false, nil
	}
	var config mcfgv1.MachineConfig
	if err := w.client.Get(ctx, client.ObjectKey{Name: first}, &config); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(&config)
	if owner == nil || owner.Kind != "MachineConfigPool" || owner.Name == masterPool || owner.Name == workerPool {
		return false, nil
	}
	var pool mcfgv1.MachineConfigPool
	if err := w.client.Get(ctx, client.ObjectKey{Name: owner.Name}, &pool); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	labels := selected(pool.Spec.NodeSelector)
	for key, value := range labels {
		if have, found := n.Labels[key]; found && have == value {
			delete(labels, key)
		}
	}
	if len(labels) == 0 {
		return false, nil
	}
	applied := ""
	written, err := w.changeNode(ctx, n.Name, nodeChange{Metadata: nodeMeta{ResourceVersion: n.ResourceVersion,
		Labels: labels, Annotations: map[string]*string{manifests.AnnotationCustomPoolLabelsApplied: &applied}}})
	if err != nil {
		return false, fmt.Errorf("label node %s for pool %s: %w", n.Name, pool.Name, err)
	}
	w.log.WithField("node", n.Name).WithField("pool", pool.Name).WithField("labels", slices.Sorted(maps.Keys(labels))).
		Info("node labelled for the pool that it booted for")
	w.unseen.note(kindNode, n.ResourceVersion, written)
	return true, nil
}

// selected are the labels that a selector asks for, where that is one value each. Those that would make a node one of
// the control plane, or that are kept from nodes' own hands, are never given: the node itself says what it booted.
func selected(selector *metav1.LabelSelector) map[string]string {
	out := map[string]string{}
	if selector == nil {
		return out
	}
	for _, e := range selector.MatchExpressions {
		switch {
		case e.Operator == metav1.LabelSelectorOpExists:
			out[e.Key] = ""
		case e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1:
			out[e.Key] = e.Values[0]
		}
	}
	maps.Copy(out, selector.MatchLabels)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return key == "node-role.kubernetes.io/master" || key == "node-role.kubernetes.io/control-plane" ||
			key == "node-role.kubernetes.io/arbiter" ||
			strings.Contains(key, "node-restriction.kubernetes.io/")
	})
	return out
}
