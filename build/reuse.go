package build

import (
	"context"
	"errors"

	"dayone.dev/dayone/build/appendengine"
)

const reusedReason = "the registry has an image with this address and all its blobs"

// reuse looks for an image with the same address. It counts only with its label and all its blobs.
func (w *work) reuse(ctx context.Context) (bool, error) {
	image, err := w.client.Find(ctx, w.r.Target, Tag(w.address), w.r.platform())
	if errors.Is(err, appendengine.ErrLost) {
		w.b.o.Log.WithError(err).Warn("an image with this address has lost its configuration and is built again")
		return false, nil
	}
	if err != nil {
		return false, registryFailure("request", err)
	}
	if image == nil || image.Labels()[LabelAddress] != w.address {
		return false, nil
	}
	missing, err := w.client.Complete(ctx, image)
	if err != nil {
		return false, registryFailure("request", err)
	}
	if missing != "" {
		w.b.o.Log.WithField("image", image.Ref.String()).WithField("blob", missing).Warn("an image with this address has lost a blob and is built again")
		return false, nil
	}
	w.result.Reused, w.result.Reason = true, reusedReason
	w.explain(ctx, image)
	w.leave()
	w.fill(image)
	return true, nil
}

// configLayer is the index of the rendered config's layer, by what the history says of it; -1 means that there is none.
func configLayer(image *appendengine.Image) int {
	layer := 0
	for _, h := range image.Config.History {
		if h.EmptyLayer {
			continue
		}
		if h.CreatedBy == createdByConfig && layer < len(image.Manifest.Layers) {
			return layer
		}
		layer++
	}
	return -1
}
