package rollout

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Memory keeps what was read of nodes until they change: of a fleet in motion few nodes change between two looks. It is safe for use by
// several goroutines; a nil Memory keeps nothing.
type Memory struct {
	mu    sync.Mutex
	known map[types.UID]readNode
}

// readNode is a node as it was in one version.
type readNode struct {
	version string
	node    Node
}

// nodeOf is NodeOf.
func (m *Memory) nodeOf(n *corev1.Node) Node {
	if m == nil || n.ResourceVersion == "" {
		return NodeOf(n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, found := m.known[n.UID]; found && have.version == n.ResourceVersion {
		return have.node
	}
	if m.known == nil {
		m.known = map[types.UID]readNode{}
	}
	node := NodeOf(n)
	m.known[n.UID] = readNode{version: n.ResourceVersion, node: node}
	return node
}

// trim forgets nodes that have gone, when they have become many.
func (m *Memory) trim(nodes int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) > 2*nodes {
		m.known = nil
	}
}
