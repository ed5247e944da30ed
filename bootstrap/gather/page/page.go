package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/build"
)

//go:embed page.html
var source string

// view is what the page shows.
type view struct {
	*analyze.Report
	Begin, End time.Time
	Bars       []bar
	Images     []image
}

// bar is a phase on the time axis; Left and Width are per cent.
type bar struct {
	analyze.Phase
	Left, Width string
	Took        string
	Kind        board.Progress
}

// image is a build with its bars.
type image struct {
	analyze.Build
	Took, Bytes string
	Steps       []part
	Layers      []part
}

// part is one step or layer; Width is per cent of the largest.
type part struct{ Name, Value, Width, Note string }

// Write prints the page.
func Write(w io.Writer, r *analyze.Report) error {
	t, err := template.New("page").Parse(board.Style())
	if err == nil {
		t, err = t.Parse(source)
	}
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	v := view{Report: r}
	v.bars()
	for _, b := range r.Builds {
		v.Images = append(v.Images, newImage(b))
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// bars places the phases on one axis from the first start to the last end.
func (v *view) bars() {
	for _, p := range v.Phases {
		if p.Started.IsZero() {
			continue
		}
		if v.Begin.IsZero() || p.Started.Before(v.Begin) {
			v.Begin = p.Started
		}
		for _, t := range []time.Time{p.Started, p.Finished} {
			if t.After(v.End) {
				v.End = t
			}
		}
	}
	if v.Gathered.After(v.End) && v.Verdict.Status == analyze.StatusRunning {
		v.End = v.Gathered
	}
	whole := max(v.End.Sub(v.Begin), time.Millisecond)
	for _, p := range v.Phases {
		b := bar{Phase: p, Kind: kind(p.Status)}
		if !p.Started.IsZero() {
			end := p.Finished
			if end.IsZero() {
				end = v.End
			}
			b.Left, b.Width = percent(p.Started.Sub(v.Begin), whole), percent(max(end.Sub(p.Started), whole/400), whole)
			b.Took = analyze.Took(end.Sub(p.Started))
		}
		v.Bars = append(v.Bars, b)
	}
}

// kind is the bar's class in the style sheet.
func kind(status string) board.Progress {
	switch status {
	case "done":
		return board.Done
	case "failed", string(analyze.StatusCutOff):
		return board.Failed
	case "pending":
		return board.Pending
	}
	return board.Running
}

func percent(part, whole time.Duration) string {
	return fmt.Sprintf("%.2f%%", 100*min(1, max(0, float64(part)/float64(whole))))
}

func newImage(b analyze.Build) image {
	out := image{Build: b, Took: analyze.Took(b.Duration), Bytes: analyze.Bytes(b.Size)}
	var longest time.Duration = 1
	var largest int64 = 1
	for _, s := range b.Steps {
		longest = max(longest, s.Duration)
	}
	for _, l := range b.Layers {
		largest = max(largest, l.Size)
	}
	for _, s := range b.Steps {
		out.Steps = append(out.Steps, part{Name: stepName(s), Value: analyze.Took(s.Duration),
			Width: percent(s.Duration, longest), Note: cached(s)})
	}
	for _, l := range b.Layers {
		out.Layers = append(out.Layers, part{Name: l.Digest, Value: analyze.Bytes(l.Size),
			Width: percent(time.Duration(l.Size), time.Duration(largest)), Note: l.From})
	}
	return out
}

func stepName(s build.Step) string {
	if s.Line > 0 {
		return fmt.Sprintf("line %d: %s", s.Line, s.Name)
	}
	return s.Name
}

func cached(s build.Step) string {
	if s.Cached {
		return "from an earlier build"
	}
	return ""
}
