package buildahengine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// logFile keeps a build's whole output up to a limit; only its owner can read it.
type logFile struct {
	path    string
	file    *os.File
	buffer  *bufio.Writer
	left    int64
	cut     bool
	failure error
}

func newLog(dir, address string, limit int64) (*logFile, error) {
	name := fmt.Sprintf("%s-%s.log", time.Now().UTC().Format("20060102T150405.000"), address[:min(len(address), 12)])
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make build log: %w", err)
	}
	return &logFile{path: path, file: f, buffer: bufio.NewWriter(f), left: limit}, nil
}

// write appends a message as a person wants to read it. The first error is kept for close: a full disk must not stop
// the reading.
func (l *logFile) write(m message) {
	text := ""
	switch m.Kind {
	case kindOutput:
		text = m.Text
	case kindFrom, kindStep:
		text = "STEP: " + m.Text
	case kindPhase:
		text = "PHASE: " + m.Text
	default:
		return
	}
	if l.cut || l.failure != nil {
		return
	}
	if l.left -= int64(len(text) + 1); l.left < 0 {
		l.cut = true
		text = "… the rest of the output is not kept: the log has reached its limit"
	}
	if _, l.failure = l.buffer.WriteString(text + "\n"); l.failure == nil && m.Kind != kindOutput {
		l.failure = l.buffer.Flush()
	}
}

// close writes what is buffered; an unwanted log is removed.
func (l *logFile) close(remove bool) error {
	err := errors.Join(l.failure, l.buffer.Flush(), l.file.Close())
	if remove {
		return os.Remove(l.path)
	}
	if err != nil {
		return fmt.Errorf("write build log: %w", err)
	}
	return nil
}
