package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/installconfig/report"
)

// Status is where a phase stands.
type Status string

// The states of a phase. A phase found running by a new process was cut off: it is interrupted until the new process
// comes to it and runs it again.
const (
	StatusPending     Status = "pending"
	StatusRunning     Status = "running"
	StatusDone        Status = "done"
	StatusFailed      Status = "failed"
	StatusInterrupted Status = "interrupted"
)

// Record is what the journal keeps of one phase.
type Record struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// InputsHash identifies everything the phase's result depends on; another hash makes the phase run again.
	InputsHash string `json:"inputsHash,omitempty"`
	Status     Status `json:"status"`
	// Attempts counts the runs of the phase with these inputs, over all processes.
	Attempts int       `json:"attempts,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// Interruptions counts the runs of the phase whose process ended without a last word, over all processes; Interrupted
	// is when the next process found that of the last one. The moment of the end itself is not known.
	Interruptions int       `json:"interruptions,omitempty"`
	Interrupted   time.Time `json:"interrupted,omitzero"`
	// Reused says that this process took the result of an earlier one.
	Reused bool `json:"reused,omitempty"`
	// Output is the phase's result; secrets never stand in it.
	Output json.RawMessage `json:"output,omitempty"`
	// Error is the cause of the last failure, with what to do next.
	Error string `json:"error,omitempty"`
}

// Duration is how long the phase took, or has taken until now while it runs; 0 when that is not known.
func (r Record) Duration(now time.Time) time.Duration {
	switch {
	case r.Started.IsZero(), r.Status == StatusInterrupted:
		return 0
	case r.Finished.IsZero():
		return now.Sub(r.Started)
	}
	return r.Finished.Sub(r.Started)
}

// Journal is the bootstrap host's record of phases. Every change is on disk before the call that made it returns.
type Journal struct {
	path string
	// Version is the layout of this file.
	Version int `json:"version"`
	// Owner names what the phases are for; absent in journals of earlier versions.
	Owner string `json:"owner,omitempty"`
	// Process identifies the run that wrote last; absent where none has.
	Process Process `json:"process,omitzero"`
	// Records are in the order in which the phases run.
	Records []Record `json:"phases"`
	// Endpoints says where the services of a finished bootstrap listen.
	Endpoints *Endpoints `json:"endpoints,omitempty"`
}

// Process is one run of dayone bootstrap.
type Process struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Endpoints are the services of a bootstrap host that has finished its phases.
type Endpoints struct {
	Registry     string `json:"registry"`
	ConfigServer string `json:"configServer"`
	// CAFile is the CA that signs the certificates of both.
	CAFile string `json:"caFile"`
}

// layoutVersion is the layout written by this version.
const layoutVersion = 1

// File is the journal's name in the state directory.
const File = "journal.json"

// Open reads STATEDIR/journal.json or starts an empty one. A file that is damaged or that a newer version wrote is an
// error that names it: it is never overwritten silently.
func Open(stateDir string) (*Journal, error) {
	j := &Journal{path: filepath.Join(stateDir, File), Version: layoutVersion, Records: []Record{}}
	raw, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state directory's journal: %w", err)
	}
	if raw, err = unseal(raw); err != nil {
		return nil, damaged(j.path, err)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, damaged(j.path, err)
	}
	switch {
	case head.Version > layoutVersion:
		return nil, report.Finding{Severity: report.Error, File: j.path, Rule: "journal-version",
			Message: fmt.Sprintf("a newer dayone wrote this journal (layout %d; this one knows up to %d)", head.Version,
				layoutVersion),
			Next: "finish this installation with that version, or move this file away to begin again with this one"}
	case head.Version != layoutVersion:
		return nil, damaged(j.path, fmt.Errorf("there is no layout %d", head.Version))
	}
	if err := json.Unmarshal(raw, j); err != nil {
		return nil, damaged(j.path, err)
	}
	return j, nil
}

// BelongTo gives a new journal to an owner, and refuses one that is another's: the keys and images beside it are, too.
// The next write records the name. An install directory without a name, which has an empty owner, is accepted.
func (j *Journal) BelongTo(owner string) error {
	if owner == "" || j.Owner == owner {
		return nil
	}
	if j.Owner != "" {
		return report.Finding{Severity: report.Error, File: j.path, Rule: "state-of-another",
			Message: fmt.Sprintf("this state directory belongs to %s, and the install directory is of %s", j.Owner, owner),
			Next: "give another --state-dir; if it is the same cluster under a new name, move this directory away to begin " +
				"again"}
	}
	j.Owner = owner
	return nil
}

// Find returns the record of a phase, or nil.
func (j *Journal) Find(name string) *Record {
	for i := range j.Records {
		if j.Records[i].Name == name {
			return &j.Records[i]
		}
	}
	return nil
}

// arrange puts the records into the order of the announced phases and drops phases that no longer exist. What an
// earlier process was at when it ended without a last word is marked so: it does not run now.
func (j *Journal) arrange(phases []Phase, now time.Time) {
	records := make([]Record, 0, len(phases))
	for _, p := range phases {
		r := Record{Name: p.Name, Status: StatusPending}
		if old := j.Find(p.Name); old != nil {
			r = *old
		}
		r.Title, r.Reused = p.Title, false
		if r.Status == StatusRunning {
			r.Status, r.Interrupted, r.Interruptions = StatusInterrupted, now, r.Interruptions+1
		}
		records = append(records, r)
	}
	j.Records, j.Endpoints = records, nil
}

// Save writes the journal with its checksum.
func (j *Journal) Save() error {
	raw, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	if err := renameio.WriteFile(j.path, seal(raw), 0o600); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// HashOf is the identity of a phase's inputs: SHA-256 over their JSON.
func HashOf(inputs any) (string, error) {
	raw, err := json.Marshal(inputs)
	if err != nil {
		return "", fmt.Errorf("hash inputs: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}
