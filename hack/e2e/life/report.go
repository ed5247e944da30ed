package life

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/progress"
	"dayone.dev/dayone/hack/e2e"
)

// Report tells what happened.
type Report struct {
	Started time.Time `json:"started"`
	Phases  []Phase   `json:"phases"`
	Checks  []Check   `json:"checks"`
	// Nodes are as they were at the end.
	Nodes []Row  `json:"nodes"`
	Work  string `json:"work"`
}

// Phase is one part of the life.
type Phase struct {
	Title    string        `json:"title"`
	Duration time.Duration `json:"durationNanoseconds"`
}

// Check is one fact that was looked up in a phase.
type Check struct {
	Phase string `json:"phase"`
	e2e.Check
}

// Row is what a node is at one moment.
type Row struct {
	Node   string `json:"node"`
	Pool   string `json:"pool"`
	Config string `json:"config"`
	// Image is the layered image by digest; empty: the base OS.
	Image string `json:"image,omitempty"`
	State string `json:"state"`
	// Doing is the agent's progress, or what is wrong.
	Doing    string `json:"doing,omitempty"`
	Cordoned bool   `json:"cordoned,omitempty"`
	Boots    int    `json:"boots"`
}

// recorder books what happens and shows it.
type recorder struct {
	view   *progress.View
	report *Report
	phase  string
}

// begin opens a phase; end closes it.
func (r *recorder) begin(title string) (end func(error)) {
	r.phase = title
	r.view.Line("\n== %s", title)
	r.view.Begin(title)
	began := time.Now()
	return func(err error) {
		took := time.Since(began)
		r.report.Phases = append(r.report.Phases, Phase{Title: title, Duration: took})
		how := "done in"
		if err != nil {
			how = "failed after"
		}
		r.view.End("%s %.1fs", how, took.Seconds())
	}
}

// nodes books and shows what the nodes are now.
func (r *recorder) nodes(rows []Row) {
	r.report.Nodes = rows
	if len(rows) > 0 {
		r.view.Line("%s", table(rows))
	}
}

// check books a fact of the present phase.
func (r *recorder) check(node, what string, ok bool, format string, args ...any) {
	r.report.Checks = append(r.report.Checks, Check{Phase: r.phase, Check: e2e.Check{Node: node, What: what, OK: ok,
		Detail: fmt.Sprintf(format, args...)}})
}

// failed names the first check that does not hold.
func (r *Report) failed() error {
	bad := 0
	var first Check
	for _, c := range r.Checks {
		if !c.OK {
			if bad++; bad == 1 {
				first = c
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d checks do not hold, the first: %s: %s: %s: %s", bad, len(r.Checks), first.Phase,
		first.Node, first.What, first.Detail)
}

// Print writes a summary for people: a line for each fact, with the nodes that it was looked up on.
func (r *Report) Print(w io.Writer) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	var sum time.Duration
	for _, f := range r.Phases {
		sum += f.Duration
		p("\n%s (%.1fs)", f.Title, f.Duration.Seconds())
		for _, line := range r.facts(f.Title) {
			p("  %s", line)
		}
	}
	bad := 0
	for _, c := range r.Checks {
		if !c.OK {
			bad++
		}
	}
	p("\nnodes at the end:\n%s\n\n%d checks, %d failed, %.0f s in all\nreport: %[5]s/report.json\nlogs:   %[5]s/logs",
		table(r.Nodes), len(r.Checks), bad, sum.Seconds(), r.Work)
}

// facts are a phase's, in their order; nodes of which the same is true share a line.
func (r *Report) facts(phase string) (lines []string) {
	nodes := map[string][]string{}
	var order []string
	for _, c := range r.Checks {
		if c.Phase != phase {
			continue
		}
		line := "ok    " + c.What
		if !c.OK {
			line = "FAIL  " + c.What
		}
		if c.Detail != "" {
			line += ": " + c.Detail
		}
		if nodes[line] == nil {
			order = append(order, line)
		}
		nodes[line] = append(nodes[line], c.Node)
	}
	for _, line := range order {
		lines = append(lines, fmt.Sprintf("%s (%s)", line, strings.Join(nodes[line], ", ")))
	}
	return lines
}

// write keeps the report beside the logs.
func (r *Report) write() error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.Work, "report.json"), append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
