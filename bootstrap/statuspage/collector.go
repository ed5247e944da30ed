package statuspage

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/nodes"
)

// tailLines is how many of the last log lines are shown.
const tailLines = 50

// Collector collects what is shown. It is safe for concurrent use; the zero value is ready.
type Collector struct {
	// Bundle writes a log bundle of this host; nil: there is none. It must be set before anything is served.
	Bundle func(context.Context, io.Writer) error
	// Nodes says how far each node is; nil: nothing is known of nodes. It must be set before anything is served.
	Nodes func() ([]nodes.Row, error)

	mu       sync.Mutex
	phases   []journal.Record
	tail     []string
	output   []string
	detail   map[string]string
	scrub    func(string) string
	bundling sync.Mutex
}

// Observe takes an event; it is a journal.Observer.
func (c *Collector) Observe(e journal.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.phases) < e.Total {
		c.phases = append(c.phases, journal.Record{})
	}
	c.phases[e.Index] = e.Record
}

// Scrub takes secrets out of everything that is shown from now on.
func (c *Collector) Scrub(scrub func(string) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scrub = scrub
}

// Output keeps a line that a build of a pool prints.
func (c *Collector) Output(pool, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output = last(c.output, pool+": "+text)
}

func last(lines []string, line string) []string {
	lines = append(lines, board.Clean(line))
	return lines[max(0, len(lines)-tailLines):]
}

// Detail says what a phase does now.
func (c *Collector) Detail(phase, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.detail == nil {
		c.detail = map[string]string{}
	}
	c.detail[phase] = text
}

// Levels makes Collector a hook of a log.
func (c *Collector) Levels() []logrus.Level {
	return []logrus.Level{logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel}
}

// Fire keeps a log line.
func (c *Collector) Fire(e *logrus.Entry) error {
	text := e.Time.UTC().Format(time.TimeOnly) + " " + e.Level.String() + " " + e.Message
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		if err, ok := e.Data[key].(error); ok {
			text += ": " + err.Error()
		} else {
			text += fmt.Sprintf(" %s=%v", key, e.Data[key])
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = last(c.tail, strings.ReplaceAll(text, "\n", " | "))
	return nil
}

// Status is what is known at a time.
func (c *Collector) Status(now time.Time) Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Time: now, Total: len(c.phases), Phases: []Phase{}, Log: c.clean(c.tail), Output: c.clean(c.output),
		Bundle: c.Bundle != nil, Nodes: c.views(now)}
	for _, r := range c.phases {
		if r.Name == "" {
			continue
		}
		p := phaseOf(r, now)
		p.Error = c.cleanText(p.Error)
		if p.Status == journal.StatusRunning {
			p.Detail = c.cleanText(c.detail[p.Name])
		}
		s.Phases = append(s.Phases, p)
	}
	s.Board = s.board()
	return s
}

// views are the nodes; a table that cannot be read shows none, and the log says why.
func (c *Collector) views(now time.Time) []nodes.View {
	if c.Nodes == nil {
		return nil
	}
	rows, err := c.Nodes()
	if err != nil {
		return nil
	}
	for i := range rows {
		rows[i].Reason, rows[i].Next = c.cleanText(rows[i].Reason), c.cleanText(rows[i].Next)
	}
	return nodes.Views(rows, now)
}

func (c *Collector) clean(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		out = append(out, c.cleanText(l))
	}
	return out
}

func (c *Collector) cleanText(text string) string {
	if c.scrub == nil {
		return text
	}
	return c.scrub(text)
}
