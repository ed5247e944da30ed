package fleet

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/disruption"
)

// Lister lists objects: a cluster's client, or something that stands for one.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error
}

// Blocking names the PodDisruptionBudgets that allow no eviction at present and that have pods on these nodes, at most
// disruption.MaxBlocking.
func Blocking(ctx context.Context, from Lister, nodes map[string]bool) ([]string, error) {
	budgets, err := closed(ctx, from)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, b := range budgets {
		if len(out) == disruption.MaxBlocking {
			break
		}
		var pods corev1.PodList
		if err := from.List(ctx, &pods, client.InNamespace(b.Namespace),
			client.MatchingLabelsSelector{Selector: b.pods}); err != nil {
			return nil, fmt.Errorf("list pods of PodDisruptionBudget %s/%s: %w", b.Namespace, b.Name, err)
		}
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return nodes[p.Spec.NodeName] }) {
			out = append(out, b.Namespace+"/"+b.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// budget is a PodDisruptionBudget that allows no eviction at present, with the pods that it is for.
type budget struct {
	*policyv1.PodDisruptionBudget
	pods labels.Selector
}

func closed(ctx context.Context, from Lister) (out []budget, err error) {
	var list policyv1.PodDisruptionBudgetList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Status.DisruptionsAllowed > 0 || b.Status.ExpectedPods == 0 {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil { // the API refuses others
			out = append(out, budget{b, selector})
		}
	}
	return out, nil
}

// maxHeld bounds of how many draining nodes the pods are read.
const maxHeld = 20

// HeldBy says for nodes that drain which pod stays because of which PodDisruptionBudget; of at most maxHeld nodes, by
// name.
func HeldBy(ctx context.Context, from Lister, nodes []string) (map[string]string, error) {
	out := map[string]string{}
	if len(nodes) == 0 {
		return out, nil
	}
	budgets, err := closed(ctx, from)
	if err != nil || len(budgets) == 0 {
		return out, err
	}
	for _, node := range nodes[:min(len(nodes), maxHeld)] {
		var pods corev1.PodList
		if err := from.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return out, fmt.Errorf("list pods of node %s: %w", node, err)
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			at := slices.IndexFunc(budgets, func(b budget) bool {
				return b.Namespace == p.Namespace && b.pods.Matches(labels.Set(p.Labels))
			})
			if at >= 0 {
				out[node] = fmt.Sprintf("PodDisruptionBudget %s/%s allows no eviction of pod %s now", p.Namespace,
					budgets[at].Name, p.Name)
				break
			}
		}
	}
	return out, nil
}
