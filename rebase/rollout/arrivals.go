package rollout

import (
	"sync"
	"time"

	"dayone.dev/dayone/rebase/target"
)

// Arrivals remembers since when this process has seen nodes at what they have: what has passed since then is measured,
// and the times that nodes write down are read off clocks, which are wrong or set. The zero value works, for several
// goroutines.
type Arrivals struct {
	mu    sync.Mutex
	pools map[string]map[string]arrival // by pool and node
}

type arrival struct {
	at   target.Target
	seen time.Time // with what it takes to measure from it
}

// Settle gives nodes that have their pool's target a time since when they have it: how long they had it when this
// process saw it first, by the wall clock of that moment, and what was measured since. A clock that is set meanwhile
// neither ends nor stretches a wave's watch. Where their own time is missing or was to come, they have it since they
// were seen.
func (a *Arrivals) Settle(l *PoolView, now time.Time) {
	if l.Pool.Waves.Soak <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, next := a.pools[l.Object.Name], map[string]arrival{}
	for i := range l.Nodes {
		n := &l.Nodes[i]
		has := n.Record.Current()
		if has != l.Pool.Target || !n.Record.Converged() {
			continue
		}
		first := known[n.Name]
		if first.at != has {
			first = arrival{has, now}
		}
		next[n.Name] = first
		before := time.Duration(0)
		if !n.UpdatedSince.IsZero() {
			before = max(0, first.seen.Sub(n.UpdatedSince))
		}
		n.UpdatedSince = first.seen.Add(-before)
	}
	if a.pools == nil {
		a.pools = map[string]map[string]arrival{}
	}
	a.pools[l.Object.Name] = next
}
