package bootstrap

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
	// Error is empty when the run was told to stop.
	Error string `json:"error,omitempty"`
	// Findings are the refusals behind Error.
	Findings []report.Finding `json:"findings,omitempty"`
}

// WithOutcome runs a flow that has locked its state directory, and notes there how the run ended.
func WithOutcome(stateDir string, log *logrus.Entry, run func() error) error {
	if err := forgetOutcome(stateDir); err != nil {
		return err
	}
	err := run()
	Options{StateDir: stateDir, Log: log, Now: time.Now}.recordOutcome(err)
	return err
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

// forgetOutcome begins a run.
func forgetOutcome(stateDir string) error {
	if err := os.Remove(filepath.Join(stateDir, OutcomeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the earlier run's outcome: %w", err)
	}
	return nil
}

// recordOutcome notes how a run ended. What cannot be written is told in the log only: the run's own error counts.
func (o Options) recordOutcome(err error) {
	out := Outcome{Ended: o.Now(), Findings: report.Of(err)}
	if err != nil {
		out.Error = err.Error()
	}
	raw, encodeErr := json.MarshalIndent(out, "", "  ")
	if encodeErr == nil {
		encodeErr = os.MkdirAll(o.StateDir, 0o700)
	}
	if encodeErr == nil {
		encodeErr = renameio.WriteFile(filepath.Join(o.StateDir, OutcomeFile), append(raw, '\n'), 0o600)
	}
	if encodeErr != nil {
		o.Log.WithError(encodeErr).Warn("outcome of this run is not written down")
	}
}
