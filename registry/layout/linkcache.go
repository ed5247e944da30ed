package layout

import (
	"sync"

	"github.com/opencontainers/go-digest"
)

// linkCacheEntries bounds the links kept in memory, some 200 bytes each. A cluster's images have a few hundred.
const linkCacheEntries = 16 << 10

// linkCache holds what the links of layers say: a push asks for each of its layers two or three times. Only one Store
// uses a root, so that links change and go through it alone.
type linkCache struct {
	mu      sync.RWMutex
	targets map[string]digest.Digest // by path
	gen     uint64
}

func (c *linkCache) get(path string) (digest.Digest, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d, ok := c.targets[path]
	return d, ok
}

// generation changes with every removal: what was read from disk before one must not be put after it.
func (c *linkCache) generation() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.gen
}

func (c *linkCache) put(path string, d digest.Digest, gen uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gen != c.gen {
		return
	}
	if c.targets == nil || len(c.targets) >= linkCacheEntries {
		c.targets = map[string]digest.Digest{}
	}
	c.targets[path] = d
}

// forget is called when links were removed or replaced. That is rare, so that all are forgotten.
func (c *linkCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.targets, c.gen = nil, c.gen+1
}

// layerTarget tells which bytes a blob of a repository has.
func (s *Store) layerTarget(path string) (digest.Digest, error) {
	if d, ok := s.links.get(path); ok {
		return d, nil
	}
	gen := s.links.generation()
	d, err := readLink(path)
	if err == nil {
		s.links.put(path, d, gen)
	}
	return d, err
}
