package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// prefetch lets nodes whose turn comes soon fetch the image beforehand, so that their drain waits for no download.
// Agents that do not know the annotation fetch when they get the target.
func prefetch(ctx context.Context, w *writer, d *decision) (time.Duration, error) {
	if !d.prefetch {
		return 0, nil
	}
	image := &d.Pool.Target.Image
	set := func(node string, changes map[string]*string) error {
		if err := w.annotate(ctx, node, changes); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("let node %s prefetch: %w", node, err)
		}
		return nil
	}
	change := d.Pool.Prefetches(d.Nodes, d.plan)
	var errs []error
	for _, node := range change.Fetch {
		w.log.WithField("pool", d.Object.Name).WithField("node", node).WithField("image", *image).Info("prefetch requested")
		errs = append(errs, set(node, map[string]*string{manifests.AnnotationPrefetch: image,
			manifests.AnnotationPrefetchError: nil}))
	}
	for _, node := range change.Forget {
		errs = append(errs, set(node, map[string]*string{manifests.AnnotationPrefetch: nil,
			manifests.AnnotationPrefetchError: nil, manifests.AnnotationPrefetched: nil}))
	}
	return 0, errors.Join(errs...)
}
