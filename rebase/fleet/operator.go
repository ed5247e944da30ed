package fleet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// OperatorNode is the node on which MCO's operator runs, which MCO sends to its target after the others of its pool,
// with the reason; none when it is not known. Source: MCO, pkg/controller/node.
func OperatorNode(ctx context.Context, from Lister) map[string]string {
	var pods corev1.PodList
	if from.List(ctx, &pods, client.InNamespace(cluster.DefaultNamespace),
		client.MatchingLabels{"k8s-app": "machine-config-operator"}) != nil || len(pods.Items) != 1 {
		return nil
	}
	if node := pods.Items[0].Spec.NodeName; node != "" {
		return map[string]string{node: "the Machine Config Operator runs on it"}
	}
	return nil
}
