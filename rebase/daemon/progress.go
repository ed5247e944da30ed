package daemon

import (
	"context"
	"fmt"
	"time"

	"dayone.dev/dayone/rebase/deploy"
)

// reportInterval is how often progress is written to the node's object, at most.
const reportInterval = 5 * time.Second

// reportProgress writes the progress of a transfer to the node until end is called. It is for people: what fails is
// left.
func reportProgress(ctx context.Context, e *edges, n node, t *deploy.Transfer) (end func()) {
	e.metrics.stages(t)
	return background(ctx, func(ctx context.Context) {
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			text := progress(string(Applying), t.State())
			if text != "" {
				_ = e.record.change(ctx, n, working(text)) // with the next tick
			}
		}
	})
}

// progress says how far a transfer is, and what for; empty while its size is not known.
func progress(what string, s deploy.TransferState) string {
	if s.Layers == 0 {
		return ""
	}
	const mega = 1e6
	return fmt.Sprintf("%s: %.1f of %.1f MB, %d of %d layers", what, float64(s.Bytes)/mega, float64(s.Total)/mega,
		s.LayersDone, s.Layers)
}
