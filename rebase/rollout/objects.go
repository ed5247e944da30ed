package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
)

const (
	// masterPool, arbiterPool and workerPool are the names of the pools that have a meaning of their own. Source: MCO.
	masterPool  = "master"
	arbiterPool = "arbiter"
	workerPool  = "worker"
)

// PoolOf reads a MachineConfigPool and its annotations. Target and Hold are the caller's to set. What an annotation
// says wrongly is an error, and the pool that comes with it is held: a window that cannot be read must not mean
// "always".
func PoolOf(p *mcfgv1.MachineConfigPool) (Pool, error) {
	out := Pool{Name: p.Name, Paused: p.Spec.Paused, MaxUnavailable: p.Spec.MaxUnavailable,
		ControlPlane: p.Name == masterPool || p.Name == arbiterPool}
	var errs []error
	read := func(key string, parse func(string) error) {
		if value, found := p.Annotations[key]; found {
			if err := parse(value); err != nil {
				errs = append(errs, fmt.Errorf("read annotation %s of pool %s: %w", key, p.Name, err))
			}
		}
	}
	read(manifests.AnnotationMaintenanceWindows, func(s string) (err error) {
		out.Windows,
			err = ParseWindows(s)
		return err
	})
	read(manifests.AnnotationRolloutWaves, func(s string) (err error) { out.Waves, err = ParseWaves(s); return err })
	read(manifests.AnnotationHaltAfter, func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is no number from 1 to 65535", s)
		}
		out.HaltAfter = int(n)
		return nil
	})
	read(manifests.AnnotationPrefetchLimit, func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is no number from 0 to 65535", s)
		}
		if out.Prefetch = int(n); n == 0 {
			out.Prefetch = -1
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		out.Hold = err.Error()
		return out, err
	}
	return out, nil
}

// NodeOf reads a Node. A record that cannot be read is in RecordErr.
func NodeOf(n *corev1.Node) Node {
	_, canary := n.Labels[manifests.LabelCanary]
	out := Node{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Created: n.CreationTimestamp.Time, Canary: canary,
		Cordoned: n.Spec.Unschedulable, NotReady: notReady(n)}
	out.Record, out.RecordErr = nodestate.Parse(n.Annotations)
	out.Prefetch = n.Annotations[manifests.AnnotationPrefetch]
	out.PrefetchEnded = n.Annotations[manifests.AnnotationPrefetched] == out.Prefetch ||
		n.Annotations[manifests.AnnotationPrefetchError] != ""
	return out
}

// ControlPlane tells whether a node is one of the control plane, by its present and its old label. An arbiter is one,
// too: it has a member of etcd and nothing else.
func ControlPlane(n *corev1.Node) bool {
	for _, label := range [...]string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
		"node-role.kubernetes.io/arbiter"} {
		if _, found := n.Labels[label]; found {
			return true
		}
	}
	return false
}

// away tells whether a node is not there for pods, or about to be away. One that no agent reports on is seen by its
// kubelet's word alone.
func (n Node) away() bool {
	return n.NotReady != "" || n.Cordoned || n.RecordErr == nil && n.Record.State != "" && !n.Record.Converged()
}

// notReady says why a node cannot take pods by its conditions; a node that has never reported is not ready.
func notReady(n *corev1.Node) string {
	reported := false
	for _, c := range n.Status.Conditions {
		bad := false
		switch c.Type {
		case corev1.NodeReady:
			reported, bad = true, c.Status != corev1.ConditionTrue
		case corev1.NodeDiskPressure, corev1.NodeNetworkUnavailable:
			bad = c.Status == corev1.ConditionTrue
		}
		if bad {
			return fmt.Sprintf("condition %s is %s: %s", c.Type, c.Status, cmp.Or(c.Message, c.Reason, "no reason given"))
		}
	}
	if !reported {
		return "its kubelet has not reported yet"
	}
	return ""
}

// ErrTwoPools is the error of a node that two custom pools select.
var ErrTwoPools = errors.New("more than one custom pool selects the node")

// Placement tells which pool a node belongs to. Pools' selectors are read once.
type Placement struct {
	pools []*mcfgv1.MachineConfigPool
	// selectors are the pools', nil for one that selects no node; errs are set for those that cannot be read.
	selectors []labels.Selector
	errs      []error
}

// NewPlacement reads the pools' selectors.
func NewPlacement(pools []*mcfgv1.MachineConfigPool) *Placement {
	p := &Placement{pools: pools, selectors: make([]labels.Selector, len(pools)), errs: make([]error, len(pools))}
	for i, pool := range pools {
		selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
		if err != nil {
			p.errs[i] = fmt.Errorf("read node selector of pool %s: %w", pool.Name, err)
			continue
		}
		// An empty selector would take every node of the cluster into one pool: it selects none.
		if !selector.Empty() {
			p.selectors[i] = selector
		}
	}
	return p
}

// Pool gives the pool that a node belongs to, nil when none selects it. The pool master wins over all others, a custom
// pool over worker. The error says why the node cannot be placed: ErrTwoPools, or a selector that cannot be read and
// may mean it.
func (p *Placement) Pool(n *corev1.Node) (*mcfgv1.MachineConfigPool, error) {
	var master, worker, custom *mcfgv1.MachineConfigPool
	var unreadMaster, unreadWorker, unread error
	var names []string
	for i, pool := range p.pools {
		err := p.errs[i]
		if err == nil && (p.selectors[i] == nil || !p.selectors[i].Matches(labels.Set(n.Labels))) {
			continue
		}
		switch {
		case pool.Name == masterPool:
			master, unreadMaster = pool, err
		case pool.Name == workerPool:
			worker, unreadWorker = pool, err
		case err != nil:
			unread = err
		default:
			custom, names = pool, append(names, pool.Name)
		}
	}
	switch {
	case unreadMaster != nil:
		return nil, unreadMaster
	case master != nil:
		return master, nil
	case len(names) > 1:
		slices.Sort(names)
		return nil, fmt.Errorf("place node %s: %w: %s: change its labels or a pool's nodeSelector", n.Name, ErrTwoPools,
			strings.Join(names, ", "))
	case unread != nil:
		return nil, unread
	case custom != nil:
		return custom, nil
	case unreadWorker != nil:
		return nil, unreadWorker
	}
	return worker, nil
}

// contested tells that a custom pool selects a node that the pool master keeps for itself.
func (p *Placement) contested(n *corev1.Node) bool {
	master, custom := false, 0
	for i, pool := range p.pools {
		switch {
		case p.selectors[i] == nil || !p.selectors[i].Matches(labels.Set(n.Labels)):
		case pool.Name == masterPool:
			master = true
		case pool.Name != workerPool:
			custom++
		}
	}
	return master && custom == 1
}

// doubt is the selector that cannot be read and because of which nobody knows which nodes are a pool's; own: it is the
// pool's. The control plane's nodes are known whatever other pools select, and those of a custom pool whatever worker
// does.
func (p *Placement) doubt(name string) (own bool, err error) {
	for i, pool := range p.pools {
		switch {
		case p.errs[i] == nil:
		case pool.Name == name:
			return true, p.errs[i]
		case pool.Name == masterPool, pool.Name != workerPool && name != masterPool:
			err = p.errs[i]
		}
	}
	return false, err
}
