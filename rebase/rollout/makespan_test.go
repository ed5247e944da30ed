package rollout_test

import (
	"fmt"
	"testing"
	"time"

	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// BenchmarkMakespan5000 carries out a rollout over 5,000 nodes in simulated time: an agent takes a drain and a boot,
// and the planner is asked whenever a node is done. It reports the time against the shortest that maxUnavailable
// allows, and what one decision costs.
func BenchmarkMakespan5000(b *testing.B) {
	const nodes, most, work = 5000, 500, 12 * time.Minute
	pool := rollout.Pool{Name: "worker", Target: newOne, MaxUnavailable: limit("10%")}
	for b.Loop() {
		var ns []rollout.Node
		for i := range nodes {
			ns = append(ns, at(fmt.Sprintf("node-%d", i), oldOne, zone(fmt.Sprint(i%7)), age(i%100)))
		}
		ends := map[int]time.Time{}
		clock, decisions, spent := now, 0, time.Duration(0)
		for done := 0; done < nodes; {
			began := time.Now()
			plan, err := rollout.Make(pool, ns, clock)
			spent, decisions = spent+time.Since(began), decisions+1
			if err != nil {
				b.Fatal(err)
			}
			next := map[string]bool{}
			for _, name := range plan.Next {
				next[name] = true
			}
			var first time.Time
			for i := range ns {
				if next[ns[i].Name] {
					ns[i].Record.DesiredConfig, ns[i].Record.DesiredImage, ns[i].Record.State = newOne.Config, newOne.Image,
						nodestate.StateWorking
					// No two nodes are equally fast: the fastest needs 4 % less than the slowest.
					ends[i] = clock.Add(work - time.Duration(i%5)*work/100)
				}
				if end, busy := ends[i]; busy && (first.IsZero() || end.Before(first)) {
					first = end
				}
			}
			clock = first
			for i, end := range ends {
				if !end.After(clock) {
					ns[i].Record.CurrentConfig, ns[i].Record.CurrentImage, ns[i].Record.State = newOne.Config, newOne.Image,
						nodestate.StateDone
					delete(ends, i)
					done++
				}
			}
		}
		b.ReportMetric(float64(clock.Sub(now))/float64(work*nodes/most), "makespan-ratio")
		b.ReportMetric(float64(spent.Microseconds())/1000/float64(decisions), "ms/decision")
	}
}
