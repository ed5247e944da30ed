package nodecontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/rollout"
)

// writer is what the steps write with.
type writer struct {
	client client.Client
	events events.EventRecorder
	log    *logrus.Entry
	now    func() time.Time
	unseen unseen
	// imageless: the cluster's MachineConfigNodes have no field for an image, as in OpenShift's default feature set. The
	// controller does not try again at every reconciliation.
	imageless atomic.Bool
}

// annotate changes annotations of a node: nil removes one.
func (w *writer) annotate(ctx context.Context, name string, changes map[string]*string) error {
	_, err := w.changeNode(ctx, name, nodeChange{Metadata: nodeMeta{Annotations: changes}})
	return err
}

// nodeChange is what is changed of a node; what it leaves out stays.
type nodeChange struct {
	Metadata nodeMeta       `json:"metadata"`
	Spec     map[string]any `json:"spec,omitempty"`
}

// nodeMeta holds annotations and labels, null to remove one, and the version that the node must still have; "": any.
type nodeMeta struct {
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
	Labels          map[string]string  `json:"labels,omitempty"`
}

// changeNode changes a node and gives it as it is then.
func (w *writer) changeNode(ctx context.Context, name string, change nodeChange) (*corev1.Node, error) {
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return written, w.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
}

// unseenLimit is after which time a write counts as seen although the cache does not show it: something has undone it
// meanwhile.
const unseenLimit = time.Minute

// unseen remembers what was written and is not in the cache yet. A decision on the state before the controller's own
// last write would send more nodes than allowed, or fail against that write. It is safe for use by several workers.
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

// Kinds of objects in unseen.
const (
	kindNode   = "node"
	kindPool   = "pool"
	kindRecord = "record"
)

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

// hides tells that the cache does not show yet what the controller wrote of a pool and its nodes.
func (u *unseen) hides(pool *rollout.PoolView) bool {
	if u.behind(kindPool, pool.Object.Name, pool.Object.ResourceVersion) {
		return true
	}
	for _, name := range u.written(kindNode) {
		for _, nodes := range []map[string]*corev1.Node{pool.Objects, pool.Quorum} {
			if n := nodes[name]; n != nil && u.behind(kindNode, name, n.ResourceVersion) {
				return true
			}
		}
	}
	return false
}
