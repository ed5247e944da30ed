package build

import (
	"context"

	"dayone.dev/dayone/build/appendengine"
)

// reuse looks for an image with the same address. It counts only with its label and all its blobs.
func (w *work) reuse(ctx context.Context) (bool, error) {
	image, err := w.client.Find(ctx, w.r.Target, Tag(w.address), w.r.platform())
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
		w.lost = true
		w.b.o.Log.WithField("image", image.Ref.String()).WithField("blob", missing).Warn("an image with this address has lost a blob and is built again")
		return false, nil
	}
	w.origin(ctx)
	w.leave()
	w.result.Reused = true
	w.result.Reason = "the registry has an image with this address and all its blobs"
	w.fill(image)
	return true, nil
}

// origin finds out what made the image that is reused: equal addresses mean equal inputs, and these choose the engine. What cannot be
// read any more, because the base has gone from the registry or a rule has become stricter since, does not stop the reuse.
func (w *work) origin(ctx context.Context) {
	if base, err := w.client.Read(ctx, w.r.Base.Reference, w.r.platform()); err == nil {
		w.base = base
	}
	if err := w.lint(); err != nil {
		w.b.o.Log.WithError(err).Debug("the containerfile of a reused image would be refused now")
		return
	}
	w.result.Engine = EngineAppend
	if plan, _ := w.plan(); plan == nil || w.r.Options.Engine == EngineBuildah {
		w.result.Engine = EngineBuildah
	}
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
