package buildahengine

import (
	"fmt"
	"os"
)

// pipe is a pair of ends that may be closed early, and again.
type pipe struct{ reader, writer *os.File }

func newPipe() (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return &pipe{r, w}, nil
}

func (p *pipe) closeReader() {
	if p.reader != nil {
		_ = p.reader.Close()
		p.reader = nil
	}
}

func (p *pipe) closeWriter() {
	if p.writer != nil {
		_ = p.writer.Close()
		p.writer = nil
	}
}

// Close closes both ends.
func (p *pipe) Close() {
	p.closeReader()
	p.closeWriter()
}

// pipes makes the child's standard input and output, and where stray prints go: to our own standard error.
func pipes() (input, output *pipe, stray *os.File, err error) {
	if input, err = newPipe(); err != nil {
		return nil, nil, nil, err
	}
	if output, err = newPipe(); err != nil {
		input.Close()
		return nil, nil, nil, err
	}
	return input, output, os.Stderr, nil
}
