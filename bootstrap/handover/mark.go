package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// MarkFile says, in the state directory, that the hand-over is done, for every later process.
const MarkFile = "handed-over.json"

// Mark is what stays of a hand-over that is done.
type Mark struct {
	Time time.Time `json:"time"`
	// Registry is the bootstrap registry, whose accounts have ended.
	Registry string `json:"registry"`
	// Instead says why nothing was handed over although the host has ended its work; empty: it was.
	Instead string `json:"instead,omitempty"`
}

// ReadMark reads the mark of a state directory; nil: nothing has been handed over.
func ReadMark(stateDir string) (*Mark, error) {
	raw, err := os.ReadFile(filepath.Join(stateDir, MarkFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the mark of the hand-over: %w", err)
	}
	m := &Mark{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(stateDir, MarkFile), err)
	}
	return m, nil
}

// Write puts the mark into a state directory.
func (m Mark) Write(stateDir string) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the mark of the hand-over: %w", err)
	}
	if err := renameio.WriteFile(filepath.Join(stateDir, MarkFile), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the mark of the hand-over: %w", err)
	}
	return nil
}
