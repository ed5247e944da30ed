package life

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"dayone.dev/dayone/hack/e2e/fleet"
)

// shortDigits of hashes tell them apart for people.
const shortDigits = 8

// rows asks all nodes that have joined.
func rows(ctx context.Context, f *fleet.Fleet) (rows []Row) {
	if f == nil {
		return nil
	}
	for _, h := range f.Hosts {
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
			image = "base"
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

// showNodes shows every node's state when it changes, and on a terminal all that are at work.
func showNodes(ctx context.Context, rec recorder, f *fleet.Fleet) {
	tick := time.NewTicker(4 * pollEvery)
	defer tick.Stop()
	last := map[string]string{}
	for {
		var busy []string
		for _, r := range rows(ctx, f) {
			doing, _, _ := strings.Cut(r.Doing, "\n")
			if doing != "" || r.State != "Done" {
				busy = append(busy, strings.TrimSpace(r.Node+" "+r.State+" "+doing))
			}
			now := fmt.Sprintf("%s %s%s", r.State, doing, map[bool]string{true: " (cordoned)"}[r.Cordoned])
			if was, known := last[r.Node]; known && was != now && r.State != "" {
				rec.view.Line("  %6.1fs  %-9s boot %d  %s", time.Since(rec.report.Started).Seconds(), r.Node, r.Boots, now)
			}
			last[r.Node] = now
		}
		rec.view.Detail(strings.Join(busy, " · "))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
