package rollout

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dayone.dev/dayone/rebase/disruption"
)

// Memory keeps what was read of nodes until they change: of a fleet in motion few nodes change between two reads. It is
// safe for use by several goroutines; a nil Memory keeps nothing.
type Memory struct {
	mu    sync.Mutex
	known map[types.UID]*readNode
}

// readNode is a node as it was in one version. Nobody changes it but for history, which is read when it is asked for.
type readNode struct {
	version string
	node    Node
	history *History
}

// History is what a node's annotations say of its last transition. It is not to be changed.
type History struct {
	// Promised is what the transition to the desired target was promised to do; nil: nothing was promised.
	Promised *disruption.Promise
	// PromisedErr is set when the promise cannot be read.
	PromisedErr error
	// Times is how long the last transitions took.
	Times Times
}

// read is NodeOf.
func (m *Memory) read(n *corev1.Node) *readNode {
	if m == nil || n.ResourceVersion == "" {
		return &readNode{node: NodeOf(n)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locked(n)
}

func (m *Memory) locked(n *corev1.Node) *readNode {
	if have := m.known[n.UID]; have != nil && have.version == n.ResourceVersion {
		return have
	}
	if m.known == nil {
		m.known = map[types.UID]*readNode{}
	}
	fresh := &readNode{version: n.ResourceVersion, node: NodeOf(n)}
	m.known[n.UID] = fresh
	return fresh
}

// historyOf reads a node's history.
func (m *Memory) historyOf(n *corev1.Node) *History {
	if m == nil || n.ResourceVersion == "" {
		return historyOf(n, NodeOf(n))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.locked(n)
	if have.history == nil {
		have.history = historyOf(n, have.node)
	}
	return have.history
}

func historyOf(n *corev1.Node, node Node) *History {
	h := &History{Times: TimesOf(n.Annotations)}
	h.Promised, h.PromisedErr = disruption.PromiseOf(n.Annotations, node.Record.DesiredConfig, node.Record.DesiredImage)
	return h
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
