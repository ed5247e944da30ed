package disruptioncontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/rollout"
)

// noteTimes writes upon each node that has arrived how long it took since it got its target. The note is on the node,
// so that it outlives this program, and there is one for each node however old the cluster is.
func noteTimes(ctx context.Context, c client.Client, pool *rollout.PoolView, now time.Time) error {
	for i := range pool.Nodes {
		n := &pool.Nodes[i]
		if !n.Record.Converged() {
			continue
		}
		h := pool.History(n.Name)
		if h.Promised == nil || h.Times.Sent == h.Promised.Sent {
			continue
		}
		sent, err := time.Parse(time.RFC3339, h.Promised.Sent)
		if err != nil {
			continue //nolint:nilerr // the history is not worth a failure
		}
		arrived := now
		if n.UpdatedSince.After(sent) && n.UpdatedSince.Before(arrived) { // else the node's clock is wrong
			arrived = n.UpdatedSince
		}
		times := rollout.Times{Sent: h.Promised.Sent, Seconds: maps.Clone(h.Times.Seconds)}
		times.Seconds[h.Promised.Level.String()] = max(1, int64(arrived.Sub(sent).Seconds()))
		raw, err := json.Marshal(times)
		if err != nil {
			return fmt.Errorf("note times of node %s: %w", n.Name, err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		if err := annotate(ctx, c, node, manifests.AnnotationUpdateTimes, string(raw)); err != nil {
			return err
		}
	}
	return nil
}

// Lister lists objects: a cluster's client, or something that stands for one.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error
}

// Blocking names the PodDisruptionBudgets that allow no eviction at present and that have pods on these nodes, at most
// disruption.MaxBlocking.
func Blocking(ctx context.Context, from Lister, nodes map[string]bool) ([]string, error) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := from.List(ctx, &budgets); err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	var out []string
	for i := range budgets.Items {
		b := &budgets.Items[i]
		if b.Status.DisruptionsAllowed > 0 || b.Status.ExpectedPods == 0 || len(out) == disruption.MaxBlocking {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue //nolint:nilerr // the API refuses such a selector
		}
		var pods corev1.PodList
		if err := from.List(ctx, &pods, client.InNamespace(b.Namespace),
			client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("list pods of PodDisruptionBudget %s/%s: %w", b.Namespace, b.Name, err)
		}
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return nodes[p.Spec.NodeName] }) {
			out = append(out, b.Namespace+"/"+b.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}
