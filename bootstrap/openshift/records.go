package openshift

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap/journal"
)

// recordsFile is the service record's name; a name with another dot is not found by the installer's analysis.
const recordsFile = "dayone-bootstrap.json"

// record is an entry in the installer's own form (bootstrap-service-record.sh).
type record struct {
	Timestamp    string `json:"timestamp"`
	Phase        string `json:"phase"`
	Result       string `json:"result,omitempty"`
	Stage        string `json:"stage,omitempty"`
	ErrorLine    string `json:"errorLine,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// records appends to the service record. What cannot be written is dropped: a record never stops the work.
type records struct {
	mu   sync.Mutex
	file string
	// noted are the texts by stage that once has written.
	noted map[string][]string
}

// add appends entries in one step.
func (r *records) add(entries ...record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []json.RawMessage
	if raw, err := os.ReadFile(r.file); err == nil {
		_ = json.Unmarshal(raw, &list) // a torn file begins anew
	}
	for _, e := range entries {
		e.Timestamp = time.Now().UTC().Format(time.RFC3339)
		raw, err := json.Marshal(e)
		if err != nil {
			return
		}
		list = append(list, raw)
	}
	raw, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return
	}
	if os.MkdirAll(filepath.Dir(r.file), 0o755) == nil {
		// Whatever the unit's umask: the installer's gather runs as core, which must read it.
		_ = os.Chmod(r.file, 0o644) // which the file that replaces it has, too
		_ = renameio.WriteFile(r.file, append(raw, '\n'), 0o644, renameio.IgnoreUmask())
	}
}

// begin opens a run. What an earlier one has left open, because it was killed or its host lost power, is closed first
// and says so: a reader of the records does not take it for running.
func (r *records) begin() {
	r.add(append(r.leftOpen(), record{Phase: "service start"})...)
}

// close is begin where nothing is left to do.
func (r *records) close() {
	if open := r.leftOpen(); len(open) > 0 {
		r.add(open...)
	}
}

// leftOpen are the ends that the last run could not write.
func (r *records) leftOpen() []record {
	raw, err := os.ReadFile(r.file)
	if err != nil {
		return nil
	}
	var entries []record
	if json.Unmarshal(raw, &entries) != nil {
		return nil
	}
	var open []string
	last, ended := "", true
	for _, e := range entries {
		last = e.Timestamp
		switch {
		case e.Phase == "service start":
			open, ended = nil, false
		case e.Phase == "service end":
			ended = true
		case e.Phase == "stage start" && e.ErrorMessage == "": // else it is a note
			open = append(open, e.Stage)
		case e.Phase == "stage end":
			open = slices.DeleteFunc(open, func(stage string) bool { return stage == e.Stage })
		}
	}
	if ended {
		return nil
	}
	message := fmt.Sprintf("interrupted: the process ended without a last word after %s; another one goes on from there",
		last)
	var out []record
	for _, stage := range open {
		out = append(out, record{Phase: "stage end", Stage: stage, Result: "failure", ErrorMessage: message})
	}
	return append(out, record{Phase: "service end", Result: "failure", ErrorMessage: message})
}

func (r *records) note(stage, text string) {
	r.add(record{Phase: "stage start", Stage: stage, ErrorMessage: text})
}

// maxNotes bounds what one stage may say: reasons may alternate for hours.
const maxNotes = 20

// once is note, but each text of a stage only once and not without end.
func (r *records) once(stage, text string) {
	r.mu.Lock()
	said := r.noted[stage]
	again := slices.Contains(said, text) || len(said) >= maxNotes
	if !again {
		if r.noted == nil {
			r.noted = map[string][]string{}
		}
		r.noted[stage] = append(said, text)
	}
	r.mu.Unlock()
	if !again {
		r.note(stage, text)
	}
}

// event records what happened to a phase.
func (r *records) event(e journal.Event) {
	switch e.Kind {
	case journal.EventStarted:
		r.add(record{Phase: "stage start", Stage: e.Record.Name})
	case journal.EventRecorded, journal.EventReused:
		r.add(record{Phase: "stage end", Stage: e.Record.Name, Result: "success"})
	case journal.EventFailed:
		r.add(record{Phase: "stage end", Stage: e.Record.Name, Result: "failure", ErrorMessage: e.Record.Error})
	}
}

func (r *records) end(err error) {
	if err != nil {
		r.add(record{Phase: "service end", Result: "failure", ErrorMessage: err.Error()})
		return
	}
	r.add(record{Phase: "service end", Result: "success"})
}
