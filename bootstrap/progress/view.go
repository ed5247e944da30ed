package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
)

// tick is how often a terminal's live line is drawn: often enough to show life, slow enough for a serial console.
const tick = 200 * time.Millisecond

// View prints steps as they run. Log lines written to it go above the live line. It is safe for concurrent use.
type View struct {
	mu   sync.Mutex
	out  io.Writer
	live bool
	// title is the step that runs, detail what it is doing; an empty title means that nothing runs.
	title, detail string
	began         time.Time
	done          chan struct{}
	stopped       sync.WaitGroup
}

// New makes a View; it is live when out is a terminal. Close ends it.
func New(out io.Writer) *View {
	v := &View{out: out, done: make(chan struct{})}
	if v.live = board.Live(out, os.Getenv("TERM")); v.live {
		v.stopped.Add(1)
		go v.redraw()
	}
	return v
}

func (v *View) redraw() {
	defer v.stopped.Done()
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-v.done:
			return
		case <-t.C:
			v.mu.Lock()
			if v.title != "" {
				line := fmt.Sprintf("%s %.1fs %s", v.title, time.Since(v.began).Seconds(), v.detail)
				fmt.Fprint(v.out, clearLine+shorten(line, v.width()-1))
			}
			v.mu.Unlock()
		}
	}
}

const (
	// clearLine erases the live line: carriage return and "erase to end of line" (ECMA-48 EL).
	clearLine = "\r\x1b[K"
	// plainWidth is a terminal's width where it cannot be asked, as on a serial console.
	plainWidth = 80
	// maxText bounds the plain lines of a build, in characters.
	maxText = 100
)

// width is how many characters fit on a row now: a live line that wraps cannot be erased.
func (v *View) width() int {
	if f, ok := v.out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 1 {
			return columns
		}
	}
	return plainWidth
}

// Phase shows an event of the bootstrap's phases; it is a journal.Observer.
func (v *View) Phase(e journal.Event) {
	title := fmt.Sprintf("[%d/%d] %s", e.Index+1, e.Total, e.Record.Title)
	took := e.Record.Duration(time.Now()).Seconds()
	switch e.Kind {
	case journal.EventStarted:
		v.Begin(title)
	case journal.EventRecorded:
		v.End("%s: done in %.2fs", title, took)
	case journal.EventReused:
		v.End("%s: done by an earlier run", title)
	case journal.EventFailed:
		v.End("%s: failed after %.2fs", title, took)
	}
	if e.Kind == journal.EventRecorded && e.Index+1 == e.Total {
		v.Line("ready: waiting for nodes")
	}
}

// Build shows what a pool's build does.
func (v *View) Build(pool string, e build.Event) {
	if e.Text == "" {
		return
	}
	v.Detail(pool + ": " + e.Text)
	if !v.live && !e.Output {
		v.Line("      %s: %s", pool, shorten(e.Text, maxText))
	}
}

// Begin names the step that runs now.
func (v *View) Begin(title string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.title, v.detail, v.began = title, "", time.Now()
	if !v.live {
		fmt.Fprintln(v.out, title+" ...")
	}
}

// Detail says what the running step is doing; it shows on a terminal only.
func (v *View) Detail(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.detail = text
}

// End says how the running step ended.
func (v *View) End(format string, args ...any) {
	v.mu.Lock()
	v.title = ""
	v.mu.Unlock()
	v.Line(format, args...)
}

// Line prints a line of its own.
func (v *View) Line(format string, args ...any) {
	// The terminal may be gone; what is shown is not what is done.
	_, _ = v.Write([]byte(fmt.Sprintf(format, args...) + "\n"))
}

// Write puts whole lines, such as a log's, above the live line.
func (v *View) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live {
		fmt.Fprint(v.out, clearLine)
	}
	return v.out.Write(p)
}

// Close ends the live line.
func (v *View) Close() {
	close(v.done)
	v.stopped.Wait()
	if v.live {
		fmt.Fprint(v.out, clearLine)
	}
}

// shorten cuts a text to its first line and at most n characters. Control characters become spaces: what a build prints
// must not move the cursor.
func shorten(s string, n int) string {
	s, _, _ = strings.Cut(s, "\n")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		return string(r[:max(n-3, 0)]) + "..."[:min(n, 3)]
	}
	return s
}
