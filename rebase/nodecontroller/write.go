package nodecontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// tell lets the planned nodes know, each by one patch.
func (r *Reconciler) tell(ctx context.Context, s *look, plan rollout.Plan) error {
	var errs []error
	for i := range s.Nodes {
		if n := &s.Nodes[i]; r.outdated(s, n) {
			if _, err := r.tellNode(ctx, s, n.Name); err != nil {
				errs = append(errs, fmt.Errorf("tell node %s its plan: %w", n.Name, err))
			}
		}
	}
	var told []string
	for _, name := range plan.Next {
		news, err := r.tellNode(ctx, s, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("tell node %s: %w", name, err))
		}
		if news {
			told = append(told, name)
			r.o.Log.WithFields(logrus.Fields{"pool": s.Object.Name, "node": name, "config": plan.Target.Config,
				"image": plan.Target.Image}).Info("node told")
		}
	}
	if len(told) > 0 {
		r.events.Eventf(s.Object, nil, corev1.EventTypeNormal, "NodesTargeted", "Tell", "told to go to %s: %s", plan.Target,
			listed(told))
	}
	return errors.Join(errs...)
}

// listed names some nodes and counts the rest.
func listed(nodes []string) string {
	if len(nodes) <= maxNamed {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:maxNamed], ", "), len(nodes)-maxNamed)
}

// tellNode changes a node's record and says what the way to the target does to it. The patch holds the resource version
// that the decision was made on: an agent or an admin that has changed the node meanwhile makes it fail, and the pool
// is looked at again. A node whose way is not in the pool's plan yet is not told; the plan's change asks again.
func (r *Reconciler) tellNode(ctx context.Context, s *look, name string) (bool, error) {
	n, target := s.Objects[name], s.Pool.Target
	record, err := nodestate.Parse(n.Annotations)
	if err != nil {
		return false, fmt.Errorf("read record: %w", err)
	}
	promise, ok, err := r.promise(s, record)
	if err != nil || !ok {
		return false, err
	}
	record.DesiredConfig, record.DesiredImage = target.Config, target.Image
	changes, err := record.Patch(n.Annotations)
	if err != nil {
		return false, fmt.Errorf("change record: %w", err)
	}
	if promise != "" {
		changes[manifests.AnnotationPlan] = &promise
	} else if _, stale := n.Annotations[manifests.AnnotationPlan]; stale {
		changes[manifests.AnnotationPlan] = nil
	}
	if len(changes) == 0 {
		return false, nil
	}
	for _, key := range []string{manifests.AnnotationPrefetch, manifests.AnnotationPrefetched,
		manifests.AnnotationPrefetchError} {
		if _, found := n.Annotations[key]; found {
			changes[key] = nil // its turn has come
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion,
		"annotations": changes}})
	if err != nil {
		return false, fmt.Errorf("encode patch: %w", err)
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err = r.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		s.again(gather)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.unseen.note(kindNode, n.ResourceVersion, written)
	return true, nil
}
