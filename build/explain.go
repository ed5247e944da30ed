package build

import (
	"context"
	"encoding/json"
	"slices"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
)

// NoteTag is the tag of the note that says how the image with this address was made. Who removes the image removes the
// note.
func NoteTag(address string) string { return "note-" + address }

// noteOf is the kind of that note.
func noteOf(text string) appendengine.Note {
	return appendengine.Note{Type: "application/vnd.dayone.build.note.v1", Annotation: "dayone.dev/build-note", Text: text}
}

// explanation is what a result says beside the image itself. It is kept beside the image, so that who gets the image
// without a build is told the same. It is no part of the image: another version of this program may say it in other
// words.
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

// keepExplanation writes the note of an image that has passed the check. Without it the image is checked again before
// it is reused.
func (w *work) keepExplanation(ctx context.Context, image *appendengine.Image) {
	raw, err := json.Marshal(explanation{
		Image: image.Ref.DigestStr(), Address: w.address, Engine: w.result.Engine, Reason: w.result.Reason,
		BaseLayers: len(w.base.Manifest.Layers),
		Placements: w.result.Placements, Config: in("", w.found.config), Files: in("", w.found.files),
	})
	if err == nil {
		err = w.client.PutNote(ctx, w.r.Target, NoteTag(w.address), noteOf(string(raw)))
	}
	if err != nil {
		w.b.o.Log.WithError(err).Warn("the explanation of an image was not kept beside it")
	}
}

// note reads what was written when the image had passed the check; nil means that there is no such note of this image.
func (w *work) note(ctx context.Context, image *appendengine.Image) *explanation {
	text, found, err := w.client.ReadNote(ctx, w.r.Target, NoteTag(w.address), noteOf(""))
	if err != nil {
		w.b.o.Log.WithError(err).Debug("the explanation of an image cannot be read")
	}
	var e explanation
	if !found || json.Unmarshal([]byte(text), &e) != nil || e.Image != image.Ref.DigestStr() || e.Address != w.address {
		return nil
	}
	return &e
}

// explain gives a reused image its explanation. The Containerfile is looked at again: a rule that has become stricter
// since does not stop the reuse.
func (w *work) explain(e *explanation) {
	if err := w.lint(); err != nil {
		w.b.o.Log.WithError(err).Debug("the containerfile of a reused image would be refused now")
	}
	w.result.Engine, w.result.Reason, w.result.Placements, w.baseLayers = e.Engine, e.Reason, e.Placements, e.BaseLayers
	w.found.config, w.found.files = in(w.r.Config.Name, e.Config), in(w.place().File, e.Files)
	w.reused()
}
