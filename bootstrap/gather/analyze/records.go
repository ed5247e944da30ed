package analyze

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// ownService is the service whose records dayone's bootstrap on an installer's node writes.
const ownService = "dayone-bootstrap"

// service is one file of records.
type service struct {
	name, file string
	entries    []record
}

// record is one entry of the installer's service records (bootstrap-service-record.sh).
type record struct {
	Timestamp    string `json:"timestamp"`
	Phase        string `json:"phase"`
	Result       string `json:"result"`
	Stage        string `json:"stage"`
	ErrorLine    string `json:"errorLine"`
	ErrorMessage string `json:"errorMessage"`
}

func (r record) time() time.Time {
	t, err := time.Parse(time.RFC3339, r.Timestamp)
	if err != nil {
		return time.Time{}
	}
	return t
}

// note says that the entry is no stage but something that dayone says between two: a wait, a limit, a file set aside.
func (r record) note() bool { return r.Phase == "stage start" && r.ErrorMessage != "" }

// interrupted begins the message of an entry with which a new process closes the stage in which an earlier one was
// killed.
const interrupted = "interrupted: "

// Beginnings of notes' names: what is waited for in a phase, and which of the installer's limits is near.
const (
	noteWait     = "wait-"
	noteTime     = "time-"
	noteFallback = "fallback"
	// handOverStage begins the names of the hand-over's stages, which say what they wait for first.
	handOverStage = "hand-over-"
)

// lastRun is what the records say of the last start of dayone's service.
type lastRun struct {
	service service
	// stage is the first that was running at the end, or the last one; open says which.
	stage string
	open  bool
	done  map[string]bool
	notes []record
	// ended and failed say how the service ended; failure is the record of that.
	ended, failed bool
	failure       record
}

func (s service) last() *lastRun {
	r := &lastRun{service: s, done: map[string]bool{}}
	var open []string
	for _, e := range s.entries {
		switch {
		case e.Phase == "service start":
			r, open = &lastRun{service: s, done: map[string]bool{}}, nil
		case e.note():
			r.notes = append(r.notes, e)
		case e.Phase == "stage start":
			open, r.stage = append(open, e.Stage), e.Stage
		case e.Phase == "stage end":
			if i := slices.Index(open, e.Stage); i >= 0 {
				open = slices.Delete(open, i, i+1)
			}
			r.done[e.Stage] = e.Result != "failure"
			if e.Result == "failure" && r.failure.Result == "" {
				r.failure = e
			}
		case e.Phase == "service end":
			r.ended = true
			if r.failed = e.Result == "failure"; r.failed && r.failure.Result == "" {
				r.failure = e
			}
		}
	}
	if len(open) > 0 {
		r.stage, r.open = open[0], true
	}
	return r
}

// note is the last note whose name has a beginning.
func (r *lastRun) note(beginning string) *record {
	if r == nil {
		return nil
	}
	for i := len(r.notes) - 1; i >= 0; i-- {
		if strings.HasPrefix(r.notes[i].Stage, beginning) {
			return &r.notes[i]
		}
	}
	return nil
}

// remarks are the notes that are worth knowing though nothing is wrong.
func (r *lastRun) remarks() (out []string) {
	if r == nil {
		return nil
	}
	for _, n := range r.notes {
		if !strings.HasPrefix(n.Stage, noteWait) && !strings.HasPrefix(n.Stage, handOverStage) && n.Stage != noteFallback {
			out = append(out, shorten(n.Stage+": "+n.ErrorMessage))
		}
	}
	return out
}

// recordEvidence is the line of a record's message, the last one that has it.
func recordEvidence(f *facts, s service, e record) Evidence {
	out := Evidence{File: s.file, Text: quote(strings.TrimSpace(e.ErrorMessage + " " + e.ErrorLine))}
	raw, err := json.Marshal(e.ErrorMessage)
	if err != nil || e.ErrorMessage == "" {
		return out
	}
	for n, line := range f.bundle.Get(s.file).Lines() {
		if strings.Contains(line, string(raw)) {
			out.Line = n + 1
		}
	}
	return out
}
