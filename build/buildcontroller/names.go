package buildcontroller

import "sync"

// names are the MachineOSConfigs that exist, with their pools.
type names struct {
	mu sync.Mutex
	of map[string]string
}

func (n *names) set(name, pool string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[name] = pool
	return len(n.of)
}

func (n *names) drop(name string) (pool string, left int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pool, ok = n.of[name]
	delete(n.of, name)
	return pool, len(n.of), ok
}
