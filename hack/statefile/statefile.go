// Package statefile keeps what the tools under hack must know after a crash: one JSON value in one file.
//
//	value ──Write──► file.new ──rename──► file ──Read──► value
package statefile

import (
	"encoding/json"
	"fmt"
	"os"
)

// Write replaces a file, mode 0600, so that a reader sees the old or the new content.
func Write(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
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
