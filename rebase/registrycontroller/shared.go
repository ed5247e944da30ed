package registrycontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/wantedimages"
	"dayone.dev/dayone/registry/authority"
	"dayone.dev/dayone/registry/poolaccounts"
)

const (
	// sharedEvery is how often the Secret is read, which nothing watches, and rotatingEvery the same while the CA is
	// replaced.
	sharedEvery   = time.Minute
	rotatingEvery = 5 * time.Second
)

// shares is what the registries share, as one pass leaves it. The zero value: a MachineConfig brings it, and there is
// no Secret.
type shares struct {
	conditions []metav1.Condition
	// ca is nil where it is not known.
	ca *authority.Status
	// again is when to look at the Secret again.
	again time.Duration
}

// share gives control-plane nodes what their registries share, sealed for each: the key of the CA, and the
// installation's accounts as hashes. No other node gets it. It renews the CA.
func share(ctx context.Context, r *reconciler, v wantedimages.View, members []registrystatus.Member) (out shares,
	err error) {
	var kept corev1.Secret
	there, err := r.secret(ctx, cluster.RegistryShared, &kept)
	if err != nil || !there {
		return out, err
	}
	status, current, caErr := renewCA(ctx, r, &kept, v, members)
	out.ca, out.again = status, sharedEvery
	if status != nil && status.Rotation != nil {
		out.again = rotatingEvery
	}
	shared, err := poolaccounts.ParseShared(kept.Data)
	if err != nil { // nodes go on with what they have
		err = fmt.Errorf("secret %s: %w: apply shared-secret.yaml of dayone registry node-config --node-agent",
			cluster.RegistryShared, err)
		out.conditions = []metav1.Condition{{Type: registrystatus.ConditionShared, Status: metav1.ConditionFalse,
			Reason: "Unusable", Message: err.Error()}, current}
		return out, err
	}
	err = caErr
	for i := range v.Nodes {
		if one := shareWith(ctx, r, &v.Nodes[i], shared); one != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", v.Nodes[i].Name, one))
		}
	}
	out.conditions = []metav1.Condition{judgeShared(shared, members), current}
	return out, err
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
