package rollout_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/registry/peers"
)

var updateScale = flag.Bool("update", false, "write the table of docs/operators/registry-scale.md anew")

// What the simulation assumes; the page says the same.
const (
	scaleImage = 1 << 30 // bytes that are new to each node
	scaleDrain = 4 * time.Minute
	scaleBoot  = 8 * time.Minute // staging, reboot, health
	scaleStep  = 20 * time.Second
	// scaleUsable of a registry's line is for nodes: 94 % are payload, and half is left to etcd and the API.
	scaleUsable = 0.94 / 2
	// scaleAhead is what an agent fetches ahead of its turn a second, by default.
	scaleAhead = 25e6
)

// fleet is a rollout in simulated time.
type fleet struct {
	pool  rollout.Pool
	nodes []rollout.Node
	place map[string]int
	seat  []int     // each node's first registry
	left  []float64 // bytes that the node lacks
	until []time.Time
	stage []stage
	// line is bytes a second that a registry, or a node, can use.
	line  float64
	clock time.Time

	peak    float64 // bytes a second of the busiest registry
	waited  int     // nodes that pulled when they were drained already
	seconds float64 // that they did so, in all
}

type stage int

const (
	stageOld stage = iota
	stageDraining
	stagePulling
	stageBooting
	stageDone
)

func newFleet(count int, gigabits float64, most string, ahead int) *fleet {
	f := &fleet{pool: rollout.Pool{Name: "worker", Target: newOne, MaxUnavailable: limit(most), Prefetch: ahead},
		place: map[string]int{}, seat: make([]int, count), left: make([]float64, count), until: make([]time.Time, count),
		stage: make([]stage, count), line: gigabits * 1e9 / 8 * scaleUsable, clock: now}
	var list peers.List
	for i := range 3 {
		list.Peers = append(list.Peers, peers.Peer{Name: fmt.Sprintf("master-%d", i), Address: fmt.Sprintf("10.0.0.%d:1", i)})
	}
	for i := range count {
		name := fmt.Sprintf("node-%04d", i)
		f.nodes = append(f.nodes, at(name, oldOne, zone(fmt.Sprint(i%3)), age(i%100)))
		f.left[i], f.place[name] = scaleImage, i
		first := list.Order(name, now, nil)[0]
		f.seat[i] = slices.Index(list.Peers, first)
	}
	return f
}

// decide asks the planner and lets agents hear of it.
func (f *fleet) decide() error {
	plan, err := rollout.Make(f.pool, f.nodes, f.clock)
	if err != nil {
		return err
	}
	change := f.pool.Prefetches(f.nodes, plan)
	for _, name := range plan.Next {
		i := f.place[name]
		n := &f.nodes[i]
		n.Record.DesiredConfig, n.Record.DesiredImage, n.Record.State = newOne.Config, newOne.Image, nodestate.StateWorking
		n.Prefetch, n.PrefetchEnded = "", false
		f.stage[i], f.until[i] = stageDraining, f.clock.Add(scaleDrain)
	}
	for _, name := range change.Fetch {
		f.nodes[f.place[name]].Prefetch = newOne.Image
	}
	return nil
}

// rates are what each node gets a second: a registry divides its line fairly among those that ask it.
func (f *fleet) rates() []float64 {
	type want struct {
		node int
		most float64
	}
	asks := make([][]want, 3)
	for i := range f.nodes {
		switch {
		case f.left[i] <= 0:
		case f.stage[i] == stagePulling:
			asks[f.seat[i]] = append(asks[f.seat[i]], want{i, f.line})
		case f.stage[i] == stageOld && f.nodes[i].Prefetch != "":
			asks[f.seat[i]] = append(asks[f.seat[i]], want{i, min(f.line, scaleAhead)})
		}
	}
	out := make([]float64, len(f.nodes))
	for _, of := range asks {
		slices.SortFunc(of, func(a, b want) int { return cmp.Compare(a.most, b.most) })
		left := f.line
		for k, w := range of {
			out[w.node] = min(w.most, left/float64(len(of)-k))
			left -= out[w.node]
		}
		f.peak = max(f.peak, f.line-left)
	}
	return out
}

// step lets a step of time pass and reports whether all nodes are done.
func (f *fleet) step() (done bool) {
	rates := f.rates()
	f.clock = f.clock.Add(scaleStep)
	done = true
	for i := range f.nodes {
		n := &f.nodes[i]
		f.left[i] -= rates[i] * scaleStep.Seconds()
		if f.left[i] <= 0 && n.Prefetch != "" {
			n.PrefetchEnded = true
		}
		switch {
		case f.stage[i] == stageDraining && !f.clock.Before(f.until[i]):
			f.stage[i] = stagePulling
			if f.left[i] > 0 {
				f.waited++
			}
			fallthrough
		case f.stage[i] == stagePulling:
			if f.left[i] > 0 {
				f.seconds += scaleStep.Seconds()
				break
			}
			// No two nodes are equally fast: the fastest needs 4 % less than the slowest.
			f.stage[i], f.until[i] = stageBooting, f.clock.Add(scaleBoot-time.Duration(i%5)*scaleBoot/100)
		case f.stage[i] == stageBooting && !f.clock.Before(f.until[i]):
			f.stage[i] = stageDone
			n.Record.CurrentConfig, n.Record.CurrentImage, n.Record.State = newOne.Config, newOne.Image, nodestate.StateDone
		}
		done = done && f.stage[i] == stageDone
	}
	return done
}

// run carries the rollout out and gives its time.
func (f *fleet) run() (time.Duration, error) {
	for {
		if err := f.decide(); err != nil {
			return 0, err
		}
		if f.step() {
			return f.clock.Sub(now), nil
		}
	}
}

// ideal is the least time that there is: that of the nodes that may be unavailable, or that of the line.
func (f *fleet) ideal(most int) time.Duration {
	work := time.Duration(len(f.nodes)/most) * (scaleDrain + scaleBoot)
	line := float64(len(f.nodes)) * scaleImage / (3 * f.line)
	return max(work, time.Duration(line*float64(time.Second))+scaleBoot)
}

// TestScale holds the page's table, and that a rollout takes at most a fifth longer than the least time.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of simulation")
	}
	var table strings.Builder
	table.WriteString("| nodes | line of a registry | least time | without prefetch | with it | against the least | " +
		"pulled after the drain | each for | busiest registry |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, count := range []int{1000, 5000} {
		for _, gigabits := range []float64{1, 10, 25} {
			without, with := newFleet(count, gigabits, "10%", -1), newFleet(count, gigabits, "10%", 0)
			slow, err := without.run()
			require.NoError(t, err)
			took, err := with.run()
			require.NoError(t, err)
			ideal := with.ideal(count / 10)
			ratio := float64(took) / float64(ideal)
			assert.LessOrEqual(t, ratio, 1.2, "%d nodes, %g Gbit/s", count, gigabits)
			each := 0.0
			if with.waited > 0 {
				each = with.seconds / float64(with.waited)
			}
			fmt.Fprintf(&table, "| %d | %g Gbit/s | %s | %s | %s | %.2f | %d | %.0f s | %.1f Gbit/s |\n", count, gigabits,
				minutes(ideal), minutes(slow), minutes(took), ratio, with.waited, each, with.peak*8/1e9)
		}
	}
	t.Log("\n" + table.String())
	const page = "../../docs/operators/registry-scale.md"
	const begin, end = "<!-- simulation -->\n", "<!-- end of simulation -->\n"
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok)
	old, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *updateScale {
		require.NoError(t, os.WriteFile(page, []byte(head+begin+table.String()+end+tail), 0o644))
		return
	}
	assert.Equal(t, table.String(), old, "go test ./rebase/rollout -run TestScale -update writes it anew")
}

func minutes(d time.Duration) string {
	d = d.Round(time.Minute)
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}
