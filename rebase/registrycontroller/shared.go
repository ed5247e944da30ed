package registrycontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/registry/poolaccounts"
)

// share gives control-plane nodes what their registries share, sealed for each: the key of the CA, and the
// installation's accounts as hashes. No other node gets it. It gives no condition where a MachineConfig brings it, and
// so there is no Secret.
func share(ctx context.Context, r *reconciler, nodes []corev1.Node, members []registrystatus.Member) (
	[]metav1.Condition, error) {
	var kept corev1.Secret
	there, err := r.secret(ctx, cluster.RegistryShared, &kept)
	if err != nil || !there {
		return nil, err
	}
	shared, err := poolaccounts.ParseShared(kept.Data)
	if err != nil { // nodes go on with what they have
		err = fmt.Errorf("secret %s: %w: apply shared-secret.yaml of dayone registry node-config --node-agent",
			cluster.RegistryShared, err)
		return []metav1.Condition{{Type: registrystatus.ConditionShared, Status: metav1.ConditionFalse, Reason: "Unusable",
			Message: err.Error()}}, err
	}
	for i := range nodes {
		if one := shareWith(ctx, r, &nodes[i], shared); one != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", nodes[i].Name, one))
		}
	}
	return []metav1.Condition{judgeShared(shared, members)}, err
}

func shareWith(ctx context.Context, r *reconciler, n *corev1.Node, shared poolaccounts.Shared) error {
	word := poolaccounts.Read[poolaccounts.Word](n.Annotations[manifests.AnnotationRegistryKey])
	have := poolaccounts.Read[poolaccounts.Sealed](n.Annotations[manifests.AnnotationRegistryShared])
	if !manifests.ControlPlane(n.Labels) || word.Key == "" || have.Account == shared.Hash() && have.Key == word.Key {
		return nil
	}
	sealed, err := poolaccounts.SealShared(shared, n.Name, word.Key)
	if err != nil {
		return err
	}
	return r.give(ctx, n.Name, manifests.AnnotationRegistryShared, sealed)
}

// judgeShared says which ready control-plane nodes have something else, by their registries' own word.
func judgeShared(shared poolaccounts.Shared, members []registrystatus.Member) metav1.Condition {
	var behind []string
	for _, m := range members {
		if m.Ready && m.Report.Shared != shared.Hash() {
			behind = append(behind, m.Name)
		}
	}
	if len(behind) > 0 {
		return metav1.Condition{Type: registrystatus.ConditionShared, Status: metav1.ConditionFalse, Reason: "Behind",
			Message: "the registries of " + strings.ReplaceAll(few(behind), ";", ",") + " do not have the CA and the accounts " +
				"of Secret " + cluster.RegistryShared + " from their node's agent: see journalctl -u dayone-registry there and " +
				"dayone-daemon's log, and whether both have the version of dayone"}
	}
	return metav1.Condition{Type: registrystatus.ConditionShared, Status: metav1.ConditionTrue, Reason: "Current",
		Message: "every ready control-plane node has the CA and the accounts of Secret " + cluster.RegistryShared}
}
