package build

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
)

// NoteTag is the tag of the note that says how the image with this address was made. Who removes the image removes the note.
func NoteTag(address string) string { return "note-" + address }

// noteOf is the kind of that note.
func noteOf(text string) appendengine.Note {
	return appendengine.Note{Type: "application/vnd.dayone.build.note.v1", Annotation: "dayone.dev/build-note", Text: text}
}

// explanation is what a result says beside the image itself. It is kept beside the image, so that who gets the image without a build
// is told the same. It is no part of the image: another version of this program may say it in other words.
type explanation struct {
	// Image is the digest that it is about.
	Image string `json:"image"`
	// Address is the request's.
	Address    string                  `json:"address"`
	Engine     Engine                  `json:"engine"`
	Reason     string                  `json:"reason"`
	BaseLayers int                     `json:"baseLayers"`
	Placements []configlayer.Placement `json:"placements,omitempty"`
	// Config and Files are findings about the rendered config and about the image's files. Names of files are left out: another
	// request with the same address has others.
	Config []report.Finding `json:"config,omitempty"`
	Files  []report.Finding `json:"files,omitempty"`
}

// findings are warnings by where they come from.
type findings struct{ lint, config, files []report.Finding }

func (f findings) all() []report.Finding { return slices.Concat(f.lint, f.config, f.files) }

// in sets the name of the file in all findings.
func in(file string, list []report.Finding) []report.Finding {
	out := slices.Clone(list)
	for i := range out {
		out[i].File = file
	}
	return out
}

// keepExplanation writes the note. Without it a reused image is explained as far as the request alone tells.
func (w *work) keepExplanation(ctx context.Context, image *appendengine.Image) {
	raw, err := json.Marshal(explanation{
		Image: image.Ref.DigestStr(), Address: w.address, Engine: w.result.Engine, Reason: w.result.Reason, BaseLayers: len(w.base.Manifest.Layers),
		Placements: w.result.Placements, Config: in("", w.found.config), Files: in("", w.found.files),
	})
	if err == nil {
		err = w.client.PutNote(ctx, w.r.Target, NoteTag(w.address), noteOf(string(raw)))
	}
	if err != nil {
		w.b.o.Log.WithError(err).Warn("the explanation of an image was not kept beside it")
	}
}

// explain gives a reused image its explanation: from the note, else from the inputs again.
func (w *work) explain(ctx context.Context, image *appendengine.Image) {
	w.baseLayers = -1
	var e explanation
	text, found, err := w.client.ReadNote(ctx, w.r.Target, NoteTag(w.address), noteOf(""))
	if err != nil {
		w.b.o.Log.WithError(err).Debug("the explanation of a reused image cannot be read")
	}
	if !found || json.Unmarshal([]byte(text), &e) != nil || e.Image != image.Ref.DigestStr() || e.Address != w.address {
		w.origin(ctx)
		return
	}
	w.relint()
	w.result.Engine, w.result.Placements, w.baseLayers = e.Engine, e.Placements, e.BaseLayers
	w.found.config, w.found.files = in(w.r.Config.Name, e.Config), in(w.place().File, e.Files)
	w.result.Reason = fmt.Sprintf("%s; it was made with the %s engine: %s", reusedReason, e.Engine, e.Reason)
}

// relint looks at the Containerfile of a reused image again: a rule that has become stricter since does not stop the reuse.
func (w *work) relint() bool {
	if err := w.lint(); err != nil {
		w.b.o.Log.WithError(err).Debug("the containerfile of a reused image would be refused now")
		return false
	}
	return true
}

// origin finds out from the inputs what made the image: equal addresses mean equal inputs, and these choose the engine. What cannot be
// read any more, because the base has gone from the registry, is not said.
func (w *work) origin(ctx context.Context) {
	if base, err := w.client.Read(ctx, w.r.Base.Reference, w.r.platform()); err == nil {
		w.base, w.baseLayers = base, len(base.Manifest.Layers)
	}
	if !w.relint() {
		return
	}
	w.result.Engine = EngineAppend
	if plan, _ := w.plan(); plan == nil || w.r.Options.Engine == EngineBuildah {
		w.result.Engine = EngineBuildah
	}
	if w.base == nil {
		return
	}
	w.time = w.created()
	tree, err := w.trees().Load(w.base.Ref.DigestStr())
	if err != nil || tree == nil {
		return // to read the base for it would take longer than it is worth
	}
	w.tree = tree
	if err := w.compile(); err != nil {
		w.b.o.Log.WithError(err).Debug("the config of a reused image would be refused now")
	}
}
