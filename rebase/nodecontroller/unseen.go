package nodecontroller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unseenLimit is after which time a write counts as seen although the cache does not show it: something has undone it
// meanwhile.
const unseenLimit = time.Minute

// unseen remembers what was written and is not in the cache yet. What is decided on the state before one's own last
// write would tell more nodes than allowed, or fail against that write. It is safe for use by several workers.
type unseen struct {
	mu     sync.Mutex
	writes map[object]write
}

// object names one that was written.
type object struct{ kind, name string }

// write is the version of an object that was written over; "": there was no object.
type write struct {
	over string
	at   time.Time
}

// note remembers that an object was written over its version before; written is the object as the API server has
// answered.
func (u *unseen) note(kind string, before string, written client.Object) {
	if before == written.GetResourceVersion() {
		return // it was so already
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writes == nil {
		u.writes = map[object]write{}
	}
	u.writes[object{kind, written.GetName()}] = write{over: before, at: time.Now()}
}

// behind tells that an object's version is still the one that was written over.
func (u *unseen) behind(kind, name, version string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	w, found := u.writes[object{kind, name}]
	if found && w.over == version && time.Since(w.at) < unseenLimit {
		return true
	}
	if found {
		delete(u.writes, object{kind, name})
	}
	return false
}

// written are the names of the objects of a kind whose writes may not have been seen.
func (u *unseen) written(kind string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []string
	for o := range u.writes {
		if o.kind == kind {
			out = append(out, o.name)
		}
	}
	return out
}

// Kinds of objects in unseen.
const (
	kindNode   = "node"
	kindPool   = "pool"
	kindRecord = "record"
)

// stale tells that the cache does not show yet what was written of this pool and its nodes.
func (r *Reconciler) stale(s *look) bool {
	if r.unseen.behind(kindPool, s.Object.Name, s.Object.ResourceVersion) {
		return true
	}
	for _, name := range r.unseen.written(kindNode) {
		for _, nodes := range []map[string]*corev1.Node{s.Objects, s.Quorum} {
			if n := nodes[name]; n != nil && r.unseen.behind(kindNode, name, n.ResourceVersion) {
				return true
			}
		}
	}
	return false
}
