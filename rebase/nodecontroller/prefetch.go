package nodecontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// prefetch lets nodes whose turn comes soon fetch the image beforehand, so that their drain waits for no download.
// Agents that do not know the annotation fetch when they are told to go.
func (r *Reconciler) prefetch(ctx context.Context, s *look, plan rollout.Plan) error {
	if s.Layered && r.o.Preflight != nil && !r.checked.passed(s.Object.Name, s.Pool.Target) {
		return nil
	}
	ahead := s.Pool.Ahead(s.Nodes, plan)
	var errs []error
	for _, name := range ahead.Fetch {
		r.o.Log.WithField("pool", s.Object.Name).WithField("node", name).WithField("image", s.Pool.Target.Image).
			Info("node fetches ahead")
		errs = append(errs, r.setPrefetch(ctx, s, name, &s.Pool.Target.Image))
	}
	for _, name := range ahead.Forget {
		errs = append(errs, r.setPrefetch(ctx, s, name, nil))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) setPrefetch(ctx context.Context, s *look, node string, image *string) error {
	changes := map[string]any{manifests.AnnotationPrefetch: image, manifests.AnnotationPrefetchError: nil}
	if image == nil {
		changes[manifests.AnnotationPrefetched] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := r.client.Patch(ctx, s.Objects[node].DeepCopy(),
		client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("let node %s fetch ahead: %w", node, err)
	}
	return nil
}
