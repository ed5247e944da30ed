package storage

import (
	"sync"
	"sync/atomic"
)

// manifestCacheBytes bounds the manifests kept in memory. A cluster's images take a few hundred kilobytes.
const manifestCacheBytes = 32 << 20

// manifestCache holds manifests by repository and tag or digest. A change in a repository drops all of it: changes are
// rare.
type manifestCache struct {
	mu    sync.RWMutex
	repos map[string]map[string]*Manifest
	bytes int
	gen   atomic.Uint64
}

func (c *manifestCache) reset() {
	c.repos, c.bytes = map[string]map[string]*Manifest{}, 0
}

// generation changes with every drop: what was read from disk before a drop must not be put after it.
func (c *manifestCache) generation() uint64 { return c.gen.Load() }

func (c *manifestCache) get(repo, ref string) *Manifest {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.repos[repo][ref]
}

func (c *manifestCache) put(repo, ref string, m *Manifest, gen uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gen != c.gen.Load() || len(m.Body) > manifestCacheBytes/4 {
		return
	}
	if c.bytes+len(m.Body) > manifestCacheBytes {
		c.reset()
	}
	if c.repos[repo] == nil {
		c.repos[repo] = map[string]*Manifest{}
	}
	if c.repos[repo][ref] == nil {
		c.bytes += len(m.Body)
	}
	c.repos[repo][ref] = m
}

func (c *manifestCache) drop(repo string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gen.Add(1)
	for _, m := range c.repos[repo] {
		c.bytes -= len(m.Body)
	}
	delete(c.repos, repo)
}
