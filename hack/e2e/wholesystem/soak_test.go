package wholesystem

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/e2e/fleet"
	"dayone.dev/dayone/rebase/target"
)

// The soak's settings: how long it goes on (a Go duration; without it it does not run) and the seed of its dice.
const (
	soakEnv     = "DAYONE_TEST_SOAK"
	soakSeedEnv = "DAYONE_TEST_SOAK_SEED"
)

// fault strikes while a change is on its way; what it gives undoes it.
type fault struct {
	name  string
	begin func(w *world, h *fleet.Host) (end func())
}

func faults() []fault {
	nothing := func() {}
	return []fault{
		{"no fault", func(*world, *fleet.Host) func() { return nothing }},
		{"agent killed", func(w *world, h *fleet.Host) func() {
			w.kill(h)
			return nothing
		}},
		{"power cut", func(w *world, h *fleet.Host) func() {
			w.watch.Excuse(h, true)
			require.NoError(w.t, h.Node.PowerCut(w.t.Context()))
			return func() {
				require.NoError(w.t, h.Node.Start(w.t.Context()))
				w.watch.Excuse(h, false)
			}
		}},
		{"clock hours ahead", func(w *world, h *fleet.Host) func() { return w.jump(h, hours) }},
		{"clock hours behind", func(w *world, h *fleet.Host) func() { return w.jump(h, -hours) }},
		{"clock years ahead", func(w *world, h *fleet.Host) func() { return w.jump(h, years) }},
		{"cable pulled", func(w *world, h *fleet.Host) func() {
			require.NoError(w.t, h.Node.SetLink(w.t.Context(), false))
			return func() { require.NoError(w.t, h.Node.SetLink(w.t.Context(), true)) }
		}},
		{"controllers killed", func(w *world, _ *fleet.Host) func() {
			require.NoError(w.t, w.controllers.Kill())
			return w.startControllers
		}},
		{"API server killed", func(w *world, _ *fleet.Host) func() {
			w.apiDown()
			return w.apiUp
		}},
		{"registry down", func(w *world, _ *fleet.Host) func() {
			w.registry.Spoil(func(rw http.ResponseWriter, _ *http.Request) bool {
				rw.WriteHeader(http.StatusServiceUnavailable)
				return true
			})
			return func() { w.registry.Spoil(nil) }
		}},
	}
}

// jump sets a host's clock.
func (w *world) jump(h *fleet.Host, by time.Duration) (back func()) {
	w.clocks.Set(h, by)
	return func() { w.clocks.Set(h, 0) }
}

// The soak changes a pool's config, recipe and layering at random, lets faults strike at random moments, and asks after
// each change: has every node its target, were no more unavailable than allowed, and has each rebooted once at most but
// for its power cuts.
func TestSoak(t *testing.T) {
	if os.Getenv(soakEnv) == "" {
		t.Skipf("goes on as long as %s says: make soak", soakEnv)
	}
	limit, err := time.ParseDuration(os.Getenv(soakEnv))
	require.NoError(t, err)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(soakSeedEnv); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d: %s=%d runs it again", seed, soakSeedEnv, seed)
	dice := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // keeps no secret
	w := newWorld(t)
	w.kubelet = true
	w.joinAll(1, 3)
	w.several(2)
	now := target.Target{Config: w.configOf(worker)}
	mark := "m0"
	for round, end := 0, time.Now().Add(limit); time.Now().Before(end); round++ {
		now, mark = w.soakRound(dice, round, now, mark)
	}
}

// soakRound makes one change with up to three faults.
func (w *world) soakRound(dice *rand.Rand, round int, was target.Target, mark string) (target.Target, string) {
	boots, cuts := w.allBoots(worker), map[*fleet.Host]int{}
	w.pods(worker, fmt.Sprintf("r%d", round))
	to, change := was, ""
	switch n := dice.IntN(6); {
	case n == 0 && was.Image != "":
		change = "opt out"
		to.Image = ""
		w.leave(worker)
	case n <= 2 && was.Image != "":
		change, mark = "another recipe", fmt.Sprintf("m%d", round)
		to = w.build(worker, was.Config, recipe{mark: mark, noise: dice.IntN(1 << 20)})
	case n <= 4 || was.Image != "":
		change = "another config"
		c := secondContent()
		c.Files["/etc/app/conf"] = fmt.Sprintf("round %d\n", round)
		to.Config = w.configure(worker, "50-app", c)
		if was.Image != "" {
			to = w.build(worker, to.Config, recipe{mark: mark})
		}
	default:
		change, mark = "opt in", fmt.Sprintf("m%d", round)
		to = w.build(worker, was.Config, recipe{mark: mark, noise: dice.IntN(1 << 20)})
	}
	struck := ""
	all := faults()
	for range dice.IntN(4) {
		f := all[dice.IntN(len(all))]
		h := w.fleet.Of(worker)[dice.IntN(len(w.fleet.Of(worker)))]
		time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
		struck += fmt.Sprintf("; %s (%s in %s)", f.name, h.Node.Name, h.State())
		end := f.begin(w, h)
		time.Sleep(time.Duration(dice.IntN(3000)) * time.Millisecond)
		end()
		if f.name == "power cut" {
			cuts[h]++
		}
	}
	what := fmt.Sprintf("round %d: %s%s", round, change, struck)
	w.arrived(what, worker, to)
	for h, n := range boots {
		require.NoError(w.t, h.Node.WaitReady(w.t.Context()))
		assert.LessOrEqual(w.t, w.boots(h)-n-cuts[h], 1, "%s: reboots of %s", what, h.Name)
	}
	w.within(1, 2)
	return to, mark
}
