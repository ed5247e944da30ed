package build

import (
	"context"
	"errors"
	"fmt"

	"dayone.dev/dayone/build/appendengine"
)

const reusedReason = "the registry has an image with this address and all its blobs"

// reuse looks for an image with the same address. It counts only with its label, all its blobs and its note, which says
// that it was checked; without the note it is left to prove.
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
		w.b.o.Log.WithField("image", image.Ref.String()).WithField("blob", missing).
			Warn("an image with this address has lost a blob and is built again")
		return false, nil
	}
	note := w.note(ctx, image)
	if note == nil {
		w.unproven = image
		return false, nil
	}
	w.explain(note)
	w.leave()
	w.fill(image)
	return true, nil
}

// prove checks an image without a note, as a fresh one is checked: it was copied here from elsewhere, or made by a
// version of this program that set the tag before it had checked the image. One that does not pass is built again.
func (w *work) prove(ctx context.Context) (bool, error) {
	w.enter("check")
	if err := w.check(ctx, w.unproven); err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		w.b.o.Log.WithError(err).WithField("image", w.unproven.Ref.String()).
			Warn("an image with this address does not pass the check and is built again")
		return false, nil
	}
	w.choose()
	w.keepExplanation(ctx, w.unproven)
	w.reused()
	w.leave()
	w.fill(w.unproven)
	return true, nil
}

// reused says so in the result, which names engine and reason of the first build.
func (w *work) reused() {
	w.result.Reused = true
	w.result.Reason = fmt.Sprintf("%s; it was made with the %s engine: %s", reusedReason, w.result.Engine, w.result.Reason)
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
