package nodecontroller

import (
	"time"

	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// promise is the annotation that tells a node what its way to the target does to it; ok is false while its way is not
// in the plan.
func (r *Reconciler) promise(s *look, record nodestate.Record) (text string, ok bool, err error) {
	if s.Effects == nil {
		return "", !r.o.Foreseen, nil
	}
	has := record.Current()
	if has == s.Effects.Target {
		// it gave up on the way to another one; how far it came, and what takes that back, is its own to see
		return "", true, nil
	}
	way, found := s.Effects.Way(has)
	if !found {
		return "", false, nil
	}
	p := s.Effects.Promise(way)
	p.Told = r.o.Now().UTC().Format(time.RFC3339)
	text, err = p.Encode()
	return text, err == nil, err
}

// outdated tells whether a node that is on its way was promised another plan than the one that stands now, for example
// because a policy has changed meanwhile. It is told anew unless the pool is held.
func (r *Reconciler) outdated(s *look, n *rollout.Node) bool {
	record := &n.Record
	if s.Effects == nil || s.Pool.Hold != "" || record.Converged() ||
		record.Desired() != s.Pool.Target {
		return false
	}
	way, found := s.Effects.Way(record.Current())
	if !found {
		return false
	}
	h := s.History(n.Name)
	return h.ToldErr != nil || h.Told != nil && h.Told.Hash != way.Hash
}
