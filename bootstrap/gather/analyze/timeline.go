package analyze

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
)

// phases are dayone's, then the stages of every service, in the order of their start.
func phases(f *facts) []Phase {
	var out []Phase
	if f.journal != nil {
		for _, r := range f.journal.Records {
			status := string(r.Status)
			if r.Status == journal.StatusRunning && !f.running ||
				r.Status == journal.StatusInterrupted {
				status = string(StatusCutOff)
			}
			out = append(out, Phase{Source: "dayone", Name: shorten(r.Name), Title: shorten(r.Title), Status: shorten(status),
				Started: r.Started, Finished: r.Finished,
				Attempts: r.Attempts, Interruptions: r.Interruptions, Interrupted: r.Interrupted, Reused: r.Reused,
				Error: shorten(r.Error)})
		}
	}
	for _, s := range f.services {
		out = append(out, s.stages()...)
	}
	return out
}

// stages pairs the starts and ends of one service.
func (s service) stages() []Phase {
	var out []Phase
	open := map[string]int{}
	for _, e := range s.entries {
		if e.note() {
			continue
		}
		what, moment, _ := strings.Cut(e.Phase, " ")
		name := e.Stage
		if name == "" {
			name = what
		}
		switch moment {
		case "start":
			open[name] = len(out)
			out = append(out, Phase{Source: shorten(s.name), Name: shorten(name), Status: "running", Started: e.time()})
		case "end":
			i, ok := open[name]
			if !ok {
				i = len(out)
				out = append(out, Phase{Source: shorten(s.name), Name: shorten(name)})
			}
			delete(open, name)
			out[i].Finished, out[i].Status = e.time(), "done"
			if e.Result == "failure" {
				out[i].Status, out[i].Error = "failed", shorten(e.ErrorMessage)
				if strings.HasPrefix(e.ErrorMessage, interrupted) {
					out[i].Status = string(StatusCutOff)
				}
			}
		}
	}
	return out
}

// builds are the recorded results of image builds. The notes say what is damaged.
func builds(j *journal.Journal) (out []Build, notes []string) {
	if j == nil {
		return nil, nil
	}
	for _, r := range j.Records {
		pool, ok := strings.CutPrefix(r.Name, "build-")
		if !ok || len(r.Output) == 0 || string(r.Output) == "null" {
			continue
		}
		b := Build{Pool: shorten(pool)}
		if err := json.Unmarshal(r.Output, &b.Result); err != nil {
			notes = append(notes, fmt.Sprintf("the result of the build for pool %s cannot be read: %v", b.Pool, err))
			continue
		}
		out = append(out, b)
	}
	return out, notes
}

// timeline merges everything that has a time.
func timeline(f *facts, r *Report) (out []Event, notes []string) {
	add := func(at time.Time, source, text string, bad bool) {
		if !at.IsZero() {
			out = append(out, Event{At: at, Source: source, Text: text, Bad: bad})
		}
	}
	for _, p := range r.Phases {
		name := p.Name
		if p.Title != "" {
			name += " (" + p.Title + ")"
		}
		add(p.Started, p.Source, name+" begins", false)
		if p.Interruptions > 0 {
			add(p.Interrupted, p.Source, fmt.Sprintf("%s was cut off (%d times so far) and runs again", name,
				p.Interruptions), true)
		}
		switch {
		case p.Error != "":
			add(p.Finished, p.Source, name+" fails: "+p.Error, true)
		case p.Status == "failed":
			add(p.Finished, p.Source, name+" fails", true)
		case p.Started.IsZero(): // a run that reused the phase's result records its end only
			add(p.Finished, p.Source, name+" is done", false)
		default:
			add(p.Finished, p.Source, fmt.Sprintf("%s is done after %s", name, round(p.Finished.Sub(p.Started))), false)
		}
	}
	for _, s := range f.services {
		for _, e := range s.entries {
			if e.note() {
				add(e.time(), shorten(s.name), shorten(e.Stage+": "+e.ErrorMessage), false)
			}
		}
	}
	if f.outcome != nil {
		text := "the run ends"
		if f.outcome.Error != "" {
			text = "the run ends: " + shorten(f.outcome.Error)
		}
		add(f.outcome.Ended, "dayone", text, f.outcome.Error != "")
	}
	add(r.Gathered, "gather", "gather makes this bundle", false)
	slices.SortStableFunc(out, func(a, b Event) int { return a.At.Compare(b.At) })
	if over := len(out) - maxEvents; over > 0 {
		notes = append(notes,
			fmt.Sprintf("the timeline has the last %d events and leaves %d earlier ones out", maxEvents, over))
		out = out[over:]
	}
	return out, notes
}

// maxEvents bounds the timeline: services that fail and start again for hours make many.
const maxEvents = 2000

// round makes a duration readable.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// slowest are a build's steps, the longest first.
func slowest(steps []build.Step) []build.Step {
	out := slices.Clone(steps)
	slices.SortStableFunc(out, func(a, b build.Step) int { return int(b.Duration - a.Duration) })
	return out
}
