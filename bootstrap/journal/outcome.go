package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
)

// OutcomeFile is the outcome's name in the state directory.
const OutcomeFile = "outcome.json"

// Outcome is how the last run on a state directory ended, also one that was refused before its first phase, which
// leaves no journal. While a run works there is none.
type Outcome struct {
	Ended time.Time `json:"ended"`
	// Error is empty when the run was asked to stop.
	Error string `json:"error,omitempty"`
	// Findings are the refusals behind Error.
	Findings []report.Finding `json:"findings,omitempty"`
}

// WithOutcome does work on a locked state directory, and notes there how it ended.
func WithOutcome(stateDir string, now func() time.Time, log *logrus.Entry, work func() error) error {
	if err := os.Remove(filepath.Join(stateDir, OutcomeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the earlier run's outcome: %w", err)
	}
	if err := forgetServices(stateDir); err != nil {
		return err
	}
	err := work()
	// An outcome that cannot be written is reported in the log only: the run's own error counts.
	if writeErr := writeOutcome(stateDir, now(), err); writeErr != nil {
		log.WithError(writeErr).Warn("outcome of this run is not written")
	}
	return err
}

// forgetServices takes back where an earlier run listened: who sees that a run works on the state directory would take
// its services for ready. A journal that cannot be read is left to those who need it.
func forgetServices(stateDir string) error {
	j, err := Open(stateDir)
	if err != nil || j.Endpoints == nil {
		return nil //nolint:nilerr // see above
	}
	j.Endpoints = nil
	return j.Save()
}

// ReadOutcome tells how the last run ended; nil: none has, or one works now.
func ReadOutcome(stateDir string) (*Outcome, error) {
	raw, err := os.ReadFile(filepath.Join(stateDir, OutcomeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last run's outcome: %w", err)
	}
	out := &Outcome{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read the last run's outcome: %w", err)
	}
	return out, nil
}

func writeOutcome(stateDir string, ended time.Time, err error) error {
	out := Outcome{Ended: ended, Findings: report.Of(err)}
	if err != nil {
		out.Error = err.Error()
	}
	raw, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("encode outcome: %w", err)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	return renameio.WriteFile(filepath.Join(stateDir, OutcomeFile), append(raw, '\n'), 0o600)
}
