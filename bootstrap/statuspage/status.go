package statuspage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
)

// BuildPhase begins the name of the phase that builds a pool's image.
const BuildPhase = "build-"

// Phase is one phase as it is shown.
type Phase struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Status  journal.Status `json:"status"`
	Started time.Time      `json:"started,omitzero"`
	// Seconds the phase took, or has taken.
	Seconds float64 `json:"seconds"`
	Reused  bool    `json:"reused,omitempty"`
	// Note says whether an earlier run did it, which attempt it is and how often it was cut off.
	Note string `json:"note,omitempty"`
	// Bytes is the size of the image that a build has made.
	Bytes int64 `json:"bytes,omitempty"`
	// Detail is what the phase does now, Error why it failed.
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Status is the state of a bootstrap at one time.
type Status struct {
	Time   time.Time `json:"time"`
	Phases []Phase   `json:"phases"`
	// Total is how many phases there are; those that have not begun are not among Phases.
	Total int `json:"total"`
	// Nodes are those that have asked for a config or an image.
	Nodes []nodes.View `json:"nodes,omitempty"`
	Log   []string     `json:"log"`
	// Output is what builds printed last.
	Output []string `json:"output,omitempty"`
	// Bundle says that bundlePath answers with a log bundle.
	Bundle bool `json:"bundle,omitempty"`
	// Board is the same as status shows it.
	Board board.Board `json:"board,omitzero"`
}

// Pending has an entry for each phase that has not begun.
func (s Status) Pending() []struct{} { return make([]struct{}, max(0, s.Total-len(s.Phases))) }

// Failed tells whether a phase has failed.
func (s Status) Failed() bool {
	return slices.ContainsFunc(s.Phases, func(p Phase) bool { return p.Status == journal.StatusFailed })
}

// OfJournal is the state of a bootstrap by its journal and its nodes. live is what the running process says; nil: none
// runs, or it cannot be asked.
func OfJournal(j *journal.Journal, running bool, live *Status, seen []nodes.View, now time.Time) Status {
	s := Status{Time: now, Total: len(j.Records), Nodes: seen}
	for _, r := range j.Records {
		p := phaseOf(r, now)
		if p.Status == journal.StatusRunning && !running {
			p.Status, p.Seconds = journal.StatusInterrupted, 0 // the time at which it was cut off is unknown
		}
		s.Phases = append(s.Phases, p)
	}
	if live != nil {
		s.Output = live.Output
		for i, p := range s.Phases {
			if k := slices.IndexFunc(live.Phases, func(l Phase) bool { return l.Name == p.Name }); k >= 0 {
				s.Phases[i].Detail = live.Phases[k].Detail
			}
		}
	}
	s.Board = s.board()
	return s
}

// phaseOf is a phase of a journal.
func phaseOf(r journal.Record, now time.Time) Phase {
	p := Phase{Name: r.Name, Title: r.Title, Status: r.Status, Started: r.Started, Seconds: r.Duration(now).Seconds(),
		Reused: r.Reused, Error: r.Error}
	var built struct {
		Size int64 `json:"size"`
	}
	if len(r.Output) > 0 && json.Unmarshal(r.Output, &built) == nil {
		p.Bytes = built.Size
	}
	var notes []string
	if r.Reused {
		notes = append(notes, "by an earlier run")
	}
	if r.Attempts > 1 {
		notes = append(notes, fmt.Sprintf("attempt %d", r.Attempts))
	}
	if n := r.Interruptions; n > 0 {
		notes = append(notes, fmt.Sprintf("cut off %s, found at %s", times(n), r.Interrupted.UTC().Format("15:04:05Z")))
	}
	p.Note = strings.Join(notes, "; ")
	return p
}

// times counts for people.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// board is the status as people see it.
func (s Status) board() board.Board {
	b := board.Board{Nodes: nodes.OnBoard(s.Nodes)}
	for _, p := range s.Phases {
		row := board.Row{Name: p.Name, State: string(p.Status), Progress: progress(p.Status), Since: p.Started,
			Seconds: p.Seconds, Bytes: p.Bytes, Text: p.Title, Says: p.Error}
		if p.Note != "" {
			row.Text += " (" + p.Note + ")"
		}
		if p.Status == journal.StatusInterrupted {
			row.State = "cut off"
		}
		pool, builds := strings.CutPrefix(p.Name, BuildPhase)
		switch {
		case builds:
			b.Pools = append(b.Pools, s.pool(pool, row))
			if p.Status == journal.StatusRunning {
				b.Builds = append(b.Builds, board.Row{Name: pool, State: row.State, Progress: board.Running, Since: p.Started,
					Seconds: p.Seconds, Text: p.Detail, Says: s.output(pool)})
			}
		case row.Says == "":
			row.Says = p.Detail
		}
		b.Phases = append(b.Phases, row)
	}
	if n := len(s.Phases); n < s.Total {
		b.Notes = []string{fmt.Sprintf("%d of %d phases begun", n, s.Total)}
	}
	return b
}

// progress is a phase's status in the words of the board.
func progress(s journal.Status) board.Progress {
	switch s {
	case journal.StatusDone:
		return board.Done
	case journal.StatusRunning:
		return board.Running
	case journal.StatusFailed, journal.StatusInterrupted:
		return board.Failed
	case journal.StatusPending:
	}
	return board.Pending
}

// pool is a pool by the phase that builds its image, and by its nodes.
func (s Status) pool(name string, build board.Row) board.Row {
	seen, booted := 0, 0
	for _, v := range s.Nodes {
		if v.Pool == name {
			seen++
			if v.Stage == nodes.StageBooted {
				booted++
			}
		}
	}
	row := board.Row{Name: name, State: "image " + build.State, Progress: build.Progress, Bytes: build.Bytes,
		Text: "no node has come yet"}
	if seen > 0 {
		row.Text = fmt.Sprintf("%d of %d nodes run their image", booted, seen)
	}
	if build.Progress == board.Done && booted < seen {
		row.Progress = board.Running
	}
	return row
}

// output is the last line that the build of a pool printed.
func (s Status) output(pool string) string {
	for _, line := range slices.Backward(s.Output) {
		if text, of := strings.CutPrefix(line, pool+": "); of {
			return text
		}
	}
	return ""
}
