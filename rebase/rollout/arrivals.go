package rollout

import (
	"sync"
	"time"
)

// Arrivals remembers since when this process has seen nodes at what they have. That counts where the time that was written down cannot be:
// it is still to come, because a node's clock was ahead, or this machine's. The zero value works, for several goroutines.
type Arrivals struct {
	mu    sync.Mutex
	pools map[string]map[string]arrival // by pool and node
}

type arrival struct {
	at   Target
	seen time.Time
}

// Settle gives nodes that have their pool's target a time since when they have it, where theirs is missing or to come. now is measured time: as
// long as the process lives nobody can set it.
func (a *Arrivals) Settle(l *Look, now time.Time) {
	if l.Pool.Waves.Soak <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before, next := a.pools[l.Object.Name], map[string]arrival{}
	for i := range l.Nodes {
		n := &l.Nodes[i]
		has := Target{Config: n.Record.CurrentConfig, Image: n.Record.CurrentImage}
		if has != l.Pool.Target || !n.Record.Converged() {
			continue
		}
		first := before[n.Name]
		if first.at != has {
			first = arrival{has, now}
		}
		next[n.Name] = first
		if n.UpdatedSince.IsZero() || n.UpdatedSince.After(now) {
			n.UpdatedSince = first.seen
		}
	}
	if a.pools == nil {
		a.pools = map[string]map[string]arrival{}
	}
	a.pools[l.Object.Name] = next
}
