package build

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig/report"
)

const reusedReason = "the registry has an image with this address and all its blobs"

// noteTag is the tag of the note that says how the image with this address was made. Who removes the image removes the
// note.
func noteTag(address string) string { return "note-" + address }

// noteOf is the kind of that note.
func noteOf(text string) appendengine.Note {
	return appendengine.Note{Type: "application/vnd.dayone.build.note.v1", Annotation: "dayone.dev/build-note", Text: text}
}

// explanation is what a result says beside the image itself. The registry keeps it beside the image, so that a build
// that reuses the image says the same. It is no part of the image: another version of this program may use other words.
type explanation struct {
	// Image is the digest that it is about.
	Image string `json:"image"`
	// Address is the request's.
	Address    string                  `json:"address"`
	Engine     Engine                  `json:"engine"`
	Reason     string                  `json:"reason"`
	BaseLayers int                     `json:"baseLayers"`
	Placements []configlayer.Placement `json:"placements,omitempty"`
	// Config and Files are findings about the rendered config and about the image's files. Names of files are left out:
	// another request with the same address has others.
	Config []report.Finding `json:"config,omitempty"`
	Files  []report.Finding `json:"files,omitempty"`
	// Kernels are the names of the image's kernels; absent: a builder of a former version did not note them.
	Kernels []string `json:"kernels,omitempty"`
}

func newExplanation(src source, plan *containerfile.Append, reason string, config []report.Finding) explanation {
	e := explanation{Address: src.address, Engine: EngineBuildah, Reason: reason,
		BaseLayers: len(src.base.image.Manifest.Layers), Placements: src.layer.Placements, Config: config}
	if plan != nil {
		e.Engine = EngineAppend
	}
	return e
}

// in sets the name of the file in all findings.
func in(file string, list []report.Finding) []report.Finding {
	out := slices.Clone(list)
	for i := range out {
		out[i].File = file
	}
	return out
}

// keep writes the note of an image that has passed the check. Without it the next build checks the image again before
// it reuses it.
func (e explanation) keep(ctx context.Context, client *appendengine.Client, r input, image *appendengine.Image,
	log *logrus.Entry) {
	e.Image, e.Config, e.Files = image.Ref.DigestStr(), in("", e.Config), in("", e.Files)
	raw, err := json.Marshal(e)
	if err == nil {
		err = noteOf(string(raw)).Put(ctx, client, r.Target, noteTag(r.address))
	}
	if err != nil {
		log.WithError(err).Warn("the note of an image was not written")
	}
}

// result describes the image.
func (e explanation) result(r input, image *appendengine.Image) *Result {
	out := &Result{Address: r.address, Digest: image.Ref.DigestStr(), MediaType: string(image.MediaType),
		Labels: image.Labels(), Reference: r.Target + "@" + image.Ref.DigestStr(), Engine: e.Engine, Reason: e.Reason,
		Placements: e.Placements, Kernels: e.Kernels,
		Warnings: slices.Concat(r.lint, in(r.Config.Name, e.Config), in(r.containerfileName(), e.Files)),
		Inputs: Inputs{Base: r.baseDigest, RenderedConfig: r.Config.Name, ConfigHash: r.configHash,
			Platform: r.platform()}}
	if r.Containerfile != "" {
		out.Inputs.Containerfile = hash([]byte(r.Containerfile))
	}
	if r.Extensions != nil && r.usesExtensions() {
		out.Inputs.Extensions = r.Extensions.Reference
	}
	config := configLayer(image)
	for i, l := range image.Manifest.Layers {
		layer := Layer{Digest: l.Digest.String(), Size: l.Size, From: "containerfile"}
		switch {
		case i < e.BaseLayers:
			layer.From = "base"
		case i == config:
			layer.From = "config"
		}
		out.Layers = append(out.Layers, layer)
		out.Size += l.Size
	}
	return out
}

// reused describes an image that this build did not make: engine and reason are those of the build that did.
func (e explanation) reused(r input, image *appendengine.Image) *Result {
	out := e.result(r, image)
	out.Reused, out.Reason = true, reusedReason+"; it was made with the "+string(e.Engine)+" engine: "+e.Reason
	return out
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

// find gives the image with the request's address: it counts only with its label and all its blobs. The note says that
// it was checked; without the note it has to be checked before it is used.
func find(ctx context.Context, client *appendengine.Client, r input, log *logrus.Entry) (*appendengine.Image,
	*explanation, error) {
	image, err := client.Find(ctx, r.Target, Tag(r.address), r.platform())
	if errors.Is(err, appendengine.ErrLost) {
		log.WithError(err).Warn("the registry has lost the configuration of the image with this address: building again")
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, registryFailure("request", err)
	}
	if image == nil || image.Labels()[LabelAddress] != r.address {
		return nil, nil, nil
	}
	missing, err := client.Complete(ctx, image)
	if err != nil {
		return nil, nil, registryFailure("request", err)
	}
	if missing != "" {
		log.WithField("image", image.Ref.String()).WithField("blob", missing).
			Warn("the registry has lost a blob of the image with this address: building again")
		return nil, nil, nil
	}
	text, found, err := noteOf("").Read(ctx, client, r.Target, noteTag(r.address))
	if err != nil {
		log.WithError(err).Debug("the note of an image cannot be read")
	}
	var e explanation
	if !found || json.Unmarshal([]byte(text), &e) != nil || e.Image != image.Ref.DigestStr() || e.Address != r.address {
		return image, nil, nil
	}
	return image, &e, nil
}

// adopt checks an image without a note as a fresh one is checked: it was copied here from elsewhere, or a version of
// this program that set the tag before the check made it. Without a result the image is built again.
func adopt(ctx context.Context, client *appendengine.Client, src source, image *appendengine.Image, note explanation,
	log *logrus.Entry) (*Result, error) {
	after, err := check(ctx, src, image)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		log.WithError(err).WithField("image", image.Ref.String()).
			Warn("the image with this address does not pass the check: building again")
		return nil, nil
	}
	note.Files, note.Kernels = after.files, after.kernels
	note.keep(ctx, client, src.input, image, log)
	return note.reused(src.input, image), nil
}
