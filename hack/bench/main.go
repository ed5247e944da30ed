// Command bench measures the figures that dayone promises and prints them beside their goals and peers.
//
//	go test -bench of each room + two demos -> medians -> table on standard output, JSON for machines
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
)

// Figure is one measured value. It is the form of the JSON list.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Peer is what it was measured against in the same run, null without one.
	Peer      *string  `json:"peer"`
	PeerValue *float64 `json:"peer_value"`
	// Ratio is value over peer_value.
	Ratio *float64 `json:"ratio"`
	// Goal is a bound such as "value <= 0.5" or "ratio >= 10", null without one.
	Goal *string `json:"goal"`
	// Holds says whether the goal is met, null without a goal.
	Holds *bool `json:"holds"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	out := flag.String("out", "", "file for the figures as JSON")
	only := flag.String("only", "", "measure only the rooms whose package contains this text")
	count := flag.Int("count", 3, "runs of each benchmark; the median counts")
	flag.Parse()
	err := bench(ctx, *out, *only, *count)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, out, only string, count int) error {
	measured, err := measure(ctx, rooms(), only, count)
	if err != nil {
		return err
	}
	figures, err := judge(figureTable(), measured)
	if err != nil {
		return err
	}
	if err := printTable(figures); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	raw, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("make directory for figures: %w", err)
	}
	return os.WriteFile(out, append(raw, '\n'), 0o644)
}

func printTable(figures []Figure) error {
	w := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tvalue\tunit\tpeer\tpeer value\tratio\tgoal\tholds")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, f.Value, f.Unit,
			text(f.Peer), number(f.PeerValue), number(f.Ratio), text(f.Goal), verdict(f.Holds))
	}
	return w.Flush()
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
}

func verdict(b *bool) string {
	switch {
	case b == nil:
		return "-"
	case *b:
		return "yes"
	}
	return "NO"
}
