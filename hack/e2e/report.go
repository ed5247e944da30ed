package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/build"
)

// Span is a stretch of time in which someone did something.
type Span struct {
	Who   string    `json:"who"`
	What  string    `json:"what"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Check is one fact that was looked up inside a node.
type Check struct {
	Node string `json:"node"`
	What string `json:"what"`
	OK   bool   `json:"ok"`
	// Detail is what was seen.
	Detail string `json:"detail,omitempty"`
}

// Report tells what happened.
type Report struct {
	// Image is the masters' image in its final registry, by digest.
	Image string `json:"image"`
	// Duration is from the bootstrap's start to the last master on its image.
	Duration time.Duration `json:"durationNanoseconds"`
	Timeline []Span        `json:"timeline"`
	Checks   []Check       `json:"checks"`
	// SignedBy is the fingerprint of the key that has signed Image, VerifiedBy how many masters have noted that it is
	// signed as their policy demands.
	SignedBy   string `json:"signedBy,omitempty"`
	VerifiedBy int    `json:"verifiedBy"`
	// Status is ostree admin status of the first master.
	Status string `json:"status"`
	Work   string `json:"work"`
	// Run and BootstrapPID name what Keep leaves running.
	Run          string `json:"run"`
	BootstrapPID int    `json:"bootstrapPID"`
}

func newReport(r *Run) *Report {
	rep := &Report{Work: r.Work, Duration: time.Since(r.started), Run: r.Lab.ID}
	if r.Bootstrap != nil {
		rep.BootstrapPID = r.Bootstrap.PID()
	}
	if j, err := journal.Open(r.State); err == nil {
		for _, p := range j.Records {
			if !p.Reused && !p.Finished.IsZero() { // not cut off, not still to come
				rep.Timeline = append(rep.Timeline, Span{Who: "bootstrap", What: p.Title, Start: p.Started, End: p.Finished})
			}
		}
	}
	rep.Timeline = append(rep.Timeline, r.spans...)
	return rep
}

// Built is the result of a pool's image build, as a state directory records it.
func Built(stateDir, pool string) (build.Result, error) {
	var out build.Result
	j, err := journal.Open(stateDir)
	if err != nil {
		return out, err
	}
	rec := j.Find("build-" + pool)
	if rec == nil {
		return out, fmt.Errorf("pool %s was not built here", pool)
	}
	return out, json.Unmarshal(rec.Output, &out)
}

// barWidth is the width of the longest possible bar, in characters.
const barWidth = 40

// Print writes checks and timeline for people.
func (rep *Report) Print(w io.Writer) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	if len(rep.Checks) > 0 {
		p("\nostree admin status on the first master:\n%s", indent(rep.Status))
		p("checks inside the nodes:")
	}
	for _, c := range rep.Checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		p("  %s %-9s %s%s", mark, c.Node, c.What, detail(c))
	}
	if len(rep.Timeline) > 0 {
		rep.printTimeline(p)
	}
	if rep.SignedBy != "" {
		p("\nsigned by key %s, verified by %d nodes", rep.SignedBy, rep.VerifiedBy)
	}
	if rep.Image != "" {
		p("\nimage:  %s\nreport: %s/report.json", rep.Image, rep.Work)
	}
	p("logs:   %s/logs (a file for the bootstrap and for each node's console)", rep.Work)
}

func (rep *Report) printTimeline(p func(format string, args ...any)) {
	p("\ntimeline (%.1f s from the bootstrap's start to the last master on its image):", rep.Duration.Seconds())
	zero, end := rep.Timeline[0].Start, rep.Timeline[0].End
	for _, s := range rep.Timeline {
		if s.End.After(end) {
			end = s.End
		}
	}
	for _, s := range rep.Timeline {
		p("  %-9s %-34s %6.2fs |%s|", s.Who, s.What, s.End.Sub(s.Start).Seconds(), bar(s, zero, end))
	}
}

func detail(c Check) string {
	if c.Detail == "" {
		return ""
	}
	return ": " + c.Detail
}

func bar(s Span, zero, end time.Time) string {
	whole := end.Sub(zero)
	if whole <= 0 {
		return strings.Repeat(" ", barWidth)
	}
	at := func(t time.Time) int { return int(float64(barWidth) * float64(t.Sub(zero)) / float64(whole)) }
	from, to := at(s.Start), at(s.End)
	from = min(from, barWidth-1)
	to = min(max(to, from+1), barWidth)
	return strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", barWidth-to)
}

func indent(s string) string { return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") }

// Failed lists the checks that did not hold.
func (rep *Report) Failed() []Check {
	var bad []Check
	for _, c := range rep.Checks {
		if !c.OK {
			bad = append(bad, c)
		}
	}
	return bad
}
