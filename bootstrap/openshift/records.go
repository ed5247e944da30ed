package openshift

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/bootstrap"
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

func (r *records) add(e record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []json.RawMessage
	if raw, err := os.ReadFile(r.file); err == nil {
		_ = json.Unmarshal(raw, &list) // a torn file begins anew
	}
	e.Timestamp = time.Now().UTC().Format(time.RFC3339)
	raw, err := json.Marshal(e)
	if err != nil {
		return
	}
	if raw, err = json.MarshalIndent(append(list, raw), "", "  "); err != nil {
		return
	}
	if os.MkdirAll(filepath.Dir(r.file), 0o755) == nil {
		_ = renameio.WriteFile(r.file, append(raw, '\n'), 0o644)
	}
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
func (r *records) event(e bootstrap.Event) {
	switch e.Kind {
	case bootstrap.EventStarted:
		r.add(record{Phase: "stage start", Stage: e.Record.Name})
	case bootstrap.EventRecorded, bootstrap.EventReused:
		r.add(record{Phase: "stage end", Stage: e.Record.Name, Result: "success"})
	case bootstrap.EventFailed:
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
