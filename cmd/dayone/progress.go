package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"dayone.dev/dayone/bootstrap"
	"dayone.dev/dayone/build"
)

// tick is how often a terminal's live line is drawn anew: fast enough to look alive, slow enough for a serial console.
const tick = 200 * time.Millisecond

// progressView prints phases as they run: one live line on a terminal, plain lines elsewhere. Log lines written to it go
// above the live line.
type progressView struct {
	mu   sync.Mutex
	out  io.Writer
	live bool
	// current is the phase that runs, detail what it is doing.
	current *bootstrap.Event
	detail  string
	done    chan struct{}
	stopped sync.WaitGroup
}

func newProgressView(out io.Writer) *progressView {
	v := &progressView{out: out, done: make(chan struct{})}
	if f, ok := out.(*os.File); ok {
		v.live = term.IsTerminal(int(f.Fd()))
	}
	if v.live {
		v.stopped.Add(1)
		go v.redraw()
	}
	return v
}

func (v *progressView) redraw() {
	defer v.stopped.Done()
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-v.done:
			return
		case <-t.C:
			v.mu.Lock()
			v.draw()
			v.mu.Unlock()
		}
	}
}

// clearLine erases the live line: carriage return and "erase to end of line" (ECMA-48 EL).
const clearLine = "\r\x1b[K"

func (v *progressView) draw() {
	if v.live && v.current != nil {
		took := v.current.Record.Duration(time.Now()).Seconds()
		fmt.Fprintf(v.out, "%s[%d/%d] %s %.1fs %s", clearLine, v.current.Index+1, v.current.Total, v.current.Record.Title, took, shorten(v.detail, 60))
	}
}

func (v *progressView) phase(e bootstrap.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	title, took := e.Record.Title, e.Record.Duration(time.Now()).Seconds()
	switch e.Kind {
	case bootstrap.EventStarted:
		v.current, v.detail = &e, ""
		if !v.live {
			v.line("[%d/%d] %s …", e.Index+1, e.Total, title)
		}
	case bootstrap.EventRecorded:
		v.current = nil
		v.line("[%d/%d] %s: done in %.2fs", e.Index+1, e.Total, title, took)
	case bootstrap.EventReused:
		v.line("[%d/%d] %s: done by an earlier run", e.Index+1, e.Total, title)
	case bootstrap.EventFailed:
		v.current = nil
		v.line("[%d/%d] %s: failed after %.2fs", e.Index+1, e.Total, title, took)
	}
	if e.Kind == bootstrap.EventRecorded && e.Index+1 == e.Total {
		v.line("ready: waiting for nodes")
	}
}

func (v *progressView) build(pool string, e build.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Text == "" {
		return
	}
	v.detail = e.Text
	if !v.live && !e.Output {
		v.line("      %s: %s", pool, shorten(e.Text, 100))
	}
}

func (v *progressView) line(format string, args ...any) {
	if v.live {
		fmt.Fprint(v.out, clearLine)
	}
	fmt.Fprintf(v.out, format+"\n", args...)
}

// Write puts a log line above the live line.
func (v *progressView) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live {
		fmt.Fprint(v.out, clearLine)
	}
	return v.out.Write(p)
}

func (v *progressView) close() {
	close(v.done)
	v.stopped.Wait()
	if v.live {
		fmt.Fprint(v.out, clearLine)
	}
}

// shorten cuts a text to its first line and at most n characters.
func shorten(s string, n int) string {
	if i := bytes.IndexByte([]byte(s), '\n'); i >= 0 {
		s = s[:i]
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
