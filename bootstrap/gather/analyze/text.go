package analyze

import (
	"fmt"
	"io"
	"strings"
	"time"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/bootstrap/nodes"
)

// WriteText prints the report for people: the verdict first.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.Verdict.text(&b, "verdict")
	for _, v := range r.Also {
		v.text(&b, "also")
	}
	if len(r.Nodes) > 0 {
		fmt.Fprintf(&b, "\nnodes:\n%s\n", strings.Join(board.Lines(nodes.OnBoard(r.Nodes), 0), "\n"))
	}
	if len(r.Timeline) > 0 {
		b.WriteString("\ntimeline (UTC):\n")
		for _, e := range r.Timeline {
			mark := " "
			if e.Bad {
				mark = "!"
			}
			fmt.Fprintf(&b, "%s %s  %-14s %s\n", mark, e.At.UTC().Format("2006-01-02 15:04:05"), e.Source, e.Text)
		}
	}
	for _, build := range r.Builds {
		how := fmt.Sprintf("built in %s", round(build.Duration))
		if build.Reused {
			how = "reused"
		}
		fmt.Fprintf(&b, "\nimage of pool %s: %s, %s, %d layers, %s\n", build.Pool, build.Digest, how, len(build.Layers),
			Bytes(build.Size))
		for i, s := range slowest(build.Steps) {
			if i == 3 {
				break
			}
			fmt.Fprintf(&b, "  %10s  %s\n", round(s.Duration), shorten(s.Name))
		}
	}
	if len(r.Differences) > 0 {
		b.WriteString("\nfrom the first to the final rendering:\n")
		for _, d := range r.Differences {
			fmt.Fprintf(&b, "  %s %s: %s -> %s\n", d.Pool, d.Field, orNone(d.First), orNone(d.Final))
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", shorten(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func (v Verdict) text(b *strings.Builder, head string) {
	place := ""
	if v.Phase != "" {
		place = " in " + v.Phase
	}
	fmt.Fprintf(b, "%s: %s%s: %s\n", head, v.Status, place, v.Summary)
	if v.Cause != "" {
		fmt.Fprintf(b, "  cause:    %s\n", v.Cause)
	}
	if v.Evidence.File != "" {
		line := ""
		if v.Evidence.Line > 0 {
			line = fmt.Sprintf(":%d", v.Evidence.Line)
		}
		fmt.Fprintf(b, "  evidence: %s%s: %s\n", v.Evidence.File, line, v.Evidence.Text)
	}
	if len(v.Output) > 1 {
		b.WriteString("  output:\n")
		for _, line := range v.Output {
			fmt.Fprintf(b, "    | %s\n", line)
		}
	}
	if v.Next != "" {
		fmt.Fprintf(b, "  next:     %s\n", v.Next)
	}
}

// Bytes is a size for people.
func Bytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// Took is a duration for people.
func Took(d time.Duration) string { return round(d).String() }

// maxText bounds what is quoted, in characters.
const maxText = 400

// shorten makes one line of a text that a terminal can show.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
	if r := []rune(text); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return text
}

// headText is how much of a long text's beginning is quoted before the part that tells the cause, in characters.
const headText = 120

// quote is shorten for evidence: of a text that is too long it keeps the beginning and what tells the cause.
func quote(text string) string {
	line := shorten(text)
	says := explain(text).says
	if says == nil || says.MatchString(line) {
		return line
	}
	at := says.FindStringIndex(text)
	if at == nil {
		return line
	}
	head, tail := []rune(text[:at[0]]), []rune(text[at[0]:])
	before := head[max(0, len(head)-headText):]
	return shorten(string(head[:min(headText, len(head))]) + " … " + string(before) +
		string(tail[:min(len(tail), headText)]))
}
