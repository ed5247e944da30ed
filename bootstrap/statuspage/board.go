package statuspage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
)

// tailLines is how many of the last log lines are shown.
const tailLines = 50

// Board collects what is shown. It is safe for concurrent use; the zero value is ready.
type Board struct {
	// Bundle writes a log bundle of this host; nil: there is none. It must be set before anything is served.
	Bundle func(context.Context, io.Writer) error
	// Nodes says how far each node is; nil: nothing is known of nodes. It must be set before anything is served.
	Nodes func() ([]nodes.Row, error)

	mu       sync.Mutex
	phases   []Phase
	tail     []string
	output   []string
	detail   map[string]string
	scrub    func(string) string
	bundling sync.Mutex
}

// Phase is one phase as it is shown.
type Phase struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Status  journal.Status `json:"status"`
	Started time.Time      `json:"started,omitzero"`
	// Seconds the phase took, or has taken.
	Seconds float64 `json:"seconds"`
	Reused  bool    `json:"reused,omitempty"`
	// Bytes is the size of the image that a build has made.
	Bytes int64 `json:"bytes,omitempty"`
	// Detail is what the phase does now, Error why it failed.
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`

	record journal.Record
}

// Status is the state of a bootstrap at one time.
type Status struct {
	Time   time.Time `json:"time"`
	Phases []Phase   `json:"phases"`
	// Total is how many phases there are; those that have not begun are not among Phases.
	Total int `json:"total"`
	// Nodes are those that have asked for a config or an image.
	Nodes []nodes.View `json:"nodes,omitempty"`
	Log   []string     `json:"log"`
	// Output is what builds printed last.
	Output []string `json:"output,omitempty"`
	// Bundle says that bundlePath answers with a log bundle.
	Bundle bool `json:"bundle,omitempty"`
}

// Pending has an entry for each phase that has not begun.
func (s Status) Pending() []struct{} { return make([]struct{}, max(0, s.Total-len(s.Phases))) }

// Observe takes an event; it is a journal.Observer.
func (b *Board) Observe(e journal.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.phases) < e.Total {
		b.phases = append(b.phases, Phase{})
	}
	r := e.Record
	p := Phase{Name: r.Name, Title: r.Title, Status: r.Status, Started: r.Started, Reused: r.Reused, Error: r.Error,
		record: r}
	var built struct {
		Size int64 `json:"size"`
	}
	if len(r.Output) > 0 && json.Unmarshal(r.Output, &built) == nil {
		p.Bytes = built.Size
	}
	b.phases[e.Index] = p
}

// Scrub takes secrets out of everything that is shown from now on.
func (b *Board) Scrub(scrub func(string) string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scrub = scrub
}

// Output keeps a line that a build of a pool prints.
func (b *Board) Output(pool, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.output = last(b.output, pool+": "+text)
}

func last(lines []string, line string) []string {
	lines = append(lines, strings.Map(printable, line))
	return lines[max(0, len(lines)-tailLines):]
}

// printable keeps what a build prints from moving the cursor of who reads the JSON on a terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// Detail says what a phase does now.
func (b *Board) Detail(phase, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detail == nil {
		b.detail = map[string]string{}
	}
	b.detail[phase] = text
}

// Levels makes Board a hook of a log.
func (b *Board) Levels() []logrus.Level {
	return []logrus.Level{logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel}
}

// Fire keeps a log line.
func (b *Board) Fire(e *logrus.Entry) error {
	text := e.Time.UTC().Format(time.TimeOnly) + " " + e.Level.String() + " " + e.Message
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		if err, ok := e.Data[key].(error); ok {
			text += ": " + err.Error()
		} else {
			text += fmt.Sprintf(" %s=%v", key, e.Data[key])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail = last(b.tail, strings.ReplaceAll(text, "\n", " | "))
	return nil
}

// Status is what is known at a time.
func (b *Board) Status(now time.Time) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{Time: now, Total: len(b.phases), Phases: []Phase{}, Log: b.clean(b.tail), Output: b.clean(b.output),
		Bundle: b.Bundle != nil, Nodes: b.views(now)}
	for _, p := range b.phases {
		if p.Name == "" {
			continue
		}
		p.Seconds = p.record.Duration(now).Seconds()
		p.Error = b.cleanText(p.Error)
		if p.Status == journal.StatusRunning {
			p.Detail = b.cleanText(b.detail[p.Name])
		}
		s.Phases = append(s.Phases, p)
	}
	return s
}

// views are the nodes; a table that cannot be read shows none, and the log says why.
func (b *Board) views(now time.Time) []nodes.View {
	if b.Nodes == nil {
		return nil
	}
	rows, err := b.Nodes()
	if err != nil {
		return nil
	}
	for i := range rows {
		rows[i].Reason, rows[i].Next = b.cleanText(rows[i].Reason), b.cleanText(rows[i].Next)
	}
	return nodes.Views(rows, now)
}

func (b *Board) clean(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		out = append(out, b.cleanText(l))
	}
	return out
}

func (b *Board) cleanText(text string) string {
	if b.scrub == nil {
		return text
	}
	return b.scrub(text)
}
