package life

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

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
	// Image is the layered image by digest; empty: the stock OS.
	Image string `json:"image,omitempty"`
	State string `json:"state"`
	// Doing is the agent's progress, or what is wrong.
	Doing    string `json:"doing,omitempty"`
	Cordoned bool   `json:"cordoned,omitempty"`
	Boots    int    `json:"boots"`
}

// shortDigits of hashes tell them apart for people.
const shortDigits = 8

// rows asks all nodes that have joined.
func (l *life) rows(ctx context.Context) (rows []Row) {
	if l.fleet == nil {
		return nil
	}
	for _, h := range l.fleet.Hosts {
		r := h.Record(ctx)
		row := Row{Node: h.Node.Name, Pool: h.Pool, Config: short(r.CurrentConfig, "-"), State: string(r.State),
			Doing: r.Progress}
		if r.CurrentImage != "" {
			row.Image = short(r.CurrentImage, ":")
		}
		if r.Reason != "" {
			row.Doing = r.Reason
		}
		if n := h.Object(ctx); n != nil {
			row.Cordoned = n.Spec.Unschedulable
		}
		row.Boots, _ = h.Node.Boots() // 0 is shown
		rows = append(rows, row)
	}
	return rows
}

// short is the beginning of what follows a name's last separator.
func short(name, separator string) string {
	name = name[strings.LastIndex(name, separator)+1:]
	return name[:min(len(name), shortDigits)]
}

func table(rows []Row) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  NODE\tPOOL\tCONFIG\tIMAGE\tSTATE\tBOOTS")
	for _, r := range rows {
		image := r.Image
		if image == "" {
			image = "stock"
		}
		state := r.State
		if r.Cordoned {
			state += ", cordoned"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%d\n", r.Node, r.Pool, r.Config, image, state, r.Boots)
	}
	_ = w.Flush() // into memory
	return strings.TrimRight(out.String(), "\n")
}

// watchNodes shows every node's state when it changes, and on a terminal all that are at work.
func (l *life) watchNodes(ctx context.Context) {
	tick := time.NewTicker(4 * pollEvery)
	defer tick.Stop()
	last := map[string]string{}
	for {
		var busy []string
		for _, r := range l.rows(ctx) {
			doing, _, _ := strings.Cut(r.Doing, "\n")
			if doing != "" || r.State != "Done" {
				busy = append(busy, strings.TrimSpace(r.Node+" "+r.State+" "+doing))
			}
			now := fmt.Sprintf("%s %s%s", r.State, doing, map[bool]string{true: " (cordoned)"}[r.Cordoned])
			if was, known := last[r.Node]; known && was != now && r.State != "" {
				l.o.View.Line("  %6.1fs  %-9s boot %d  %s", time.Since(l.report.Started).Seconds(), r.Node, r.Boots, now)
			}
			last[r.Node] = now
		}
		l.o.View.Detail(strings.Join(busy, " · "))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
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
