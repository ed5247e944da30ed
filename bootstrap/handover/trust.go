package handover

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// endTrust asks every node's agent to forget the bootstrap registry: its mirror, its CA and its account. No node
// reboots for it. It is done before the account ends, so that no node ever asks with an account that has ended.
func endTrust(ctx context.Context, c client.Client, o Options) error {
	if o.Plan.KeepTrust {
		return nil
	}
	v, err := readView(ctx, c)
	if err != nil {
		return err
	}
	var left []string
	for _, n := range v.Nodes {
		if n.Annotations[manifests.AnnotationCurrentConfig] == "" ||
			n.Annotations[manifests.AnnotationTrustEnded] == o.Plan.Registry {
			continue
		}
		left = append(left, n.Name)
		if n.Annotations[manifests.AnnotationEndTrust] == o.Plan.Registry {
			continue
		}
		old := n.DeepCopy()
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationEndTrust, o.Plan.Registry)
		if err := c.Patch(ctx, n, client.MergeFrom(old), client.FieldOwner(manager)); err != nil {
			return ofCluster(fmt.Errorf("ask node %s to end its trust: %w", n.Name, err))
		}
		o.Log.WithField("node", n.Name).Info("node is asked to forget the bootstrap registry")
	}
	if len(left) > 0 {
		return waitsFor{fmt.Sprintf(
			"nodes have not ended their trust in %s yet: %s: see that their agent runs, or run dayone-daemon end-trust "+
				"%s on them and annotate them with %s=%s",
			o.Plan.Registry, strings.Join(left, ", "), o.Plan.Registry, manifests.AnnotationTrustEnded, o.Plan.Registry)}
	}
	return nil
}
