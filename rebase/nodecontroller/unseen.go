package nodecontroller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unseenLimit is after which time a write counts as seen although the cache does not show it: something has undone it meanwhile.
const unseenLimit = time.Minute

// unseen remembers what was written and is not in the cache yet. What is decided on the state before one's own last write would tell
// more nodes than allowed, or fail against that write. It is safe for use by several workers.
type unseen struct {
	mu     sync.Mutex
	writes map[string]write
}

// write is the version of an object that was written over; "": there was no object.
type write struct {
	over string
	at   time.Time
}

// note remembers that an object was written over its version before; written is the object as the API server has answered.
func (u *unseen) note(kind string, before string, written client.Object) {
	if before == written.GetResourceVersion() {
		return // it was so already
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writes == nil {
		u.writes = map[string]write{}
	}
	u.writes[kind+"/"+written.GetName()] = write{over: before, at: time.Now()}
}

// behind tells that an object's version is still the one that was written over.
func (u *unseen) behind(kind, name, version string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.writes) == 0 {
		return false
	}
	w, found := u.writes[kind+"/"+name]
	if found && w.over == version && time.Since(w.at) < unseenLimit {
		return true
	}
	delete(u.writes, kind+"/"+name)
	return false
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
	for _, nodes := range []map[string]*corev1.Node{s.Objects, s.Quorum} {
		for name, n := range nodes {
			if r.unseen.behind(kindNode, name, n.ResourceVersion) {
				return true
			}
		}
	}
	return false
}
