package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"dayone.dev/dayone/hack/testnode/clock"
)

// clockEvery is how often processes are looked for that have the machine's clock and should not.
const clockEvery = 20 * time.Millisecond

// Clocks keeps the wall clocks of agents away from this machine's, whatever becomes of their processes. The zero value
// works.
type Clocks struct {
	mu  sync.Mutex
	off map[*Host]time.Duration
}

// Set puts the clock of a host's agent so far ahead or behind, and the clocks of the agents that come after it, too.
func (c *Clocks) Set(h *Host, by time.Duration) {
	c.mu.Lock()
	if c.off == nil {
		c.off = map[*Host]time.Duration{}
	}
	c.off[h] = by
	c.mu.Unlock()
	c.apply(h)
}

// Run does so until ctx ends. An agent that has just started has this machine's clock for a moment, and then it jumps.
func (c *Clocks) Run(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		c.mu.Lock()
		hosts := slices.Collect(maps.Keys(c.off))
		c.mu.Unlock()
		for _, h := range hosts {
			c.apply(h)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// apply sets what processes there are: the agent's, and what it runs.
func (c *Clocks) apply(h *Host) {
	pids, err := h.AgentPIDs()
	if err != nil {
		return // of a host that is just booting
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range pids {
		_ = clock.Shift(pid, c.off[h]) // of one that is just ending
	}
}
