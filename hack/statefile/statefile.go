// Package statefile keeps what the tools under hack must know after a crash: one JSON value in one file.
//
//	value -> Write -> whole old or new file -> Read -> value
package statefile

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/renameio/v2"
)

// Write replaces a file, mode 0600, so that a reader sees the old or the new content.
func Write(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, raw, 0o600)
}

// Read reads what Write wrote.
func Read(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
