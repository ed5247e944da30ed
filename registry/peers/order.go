package peers

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"time"
)

const (
	// minPause and maxPause bound how long a peer that failed is asked last; the pause doubles from one to the other.
	minPause = time.Second
	maxPause = time.Minute
	// maxAsked bounds what a peer may ask for with Retry-After: it may have mended itself long before.
	maxAsked = 5 * time.Minute
)

// Health is how a peer did. The zero value is that of one that never failed.
type Health struct {
	// Failures in a row.
	Failures int
	// Until is when its turn comes again.
	Until time.Time
}

// Failed is the health after one more failure. asked is the pause that the peer asked for, 0: none.
func (h Health) Failed(now time.Time, asked time.Duration) Health {
	pause := minPause
	for range min(h.Failures, 10) {
		pause = min(2*pause, maxPause)
	}
	h.Failures++
	h.Until = now.Add(max(pause, min(asked, maxAsked)))
	return h
}

// away: it failed lately. A pause that is longer than any was begun before the clock was set back.
func (h Health) away(now time.Time) bool { return now.Before(h.Until) && h.Until.Sub(now) <= maxAsked }

// Order is the order in which a node asks the peers: its own registry if it has one, then those that a hash of both
// names chooses, so that each peer is first for its share of the nodes, and a peer that comes or goes changes the first
// one of that share only. Peers that failed lately go last, the one whose turn comes soonest first: they are asked when
// no other has an answer. health is by name; one that is not in it never failed.
func (l List) Order(node string, now time.Time, health map[string]Health) []Peer {
	type ranked struct {
		Peer
		own, away bool
		until     time.Time
		hash      [sha256.Size]byte
	}
	all := make([]ranked, 0, len(l.Peers))
	for _, p := range l.Peers {
		h := health[p.Name]
		r := ranked{Peer: p, own: p.Name == node, away: h.away(now), hash: sha256.Sum256([]byte(node + "\x00" + p.Name))}
		if r.away {
			r.until = h.Until
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(first(!a.away, !b.away), a.until.Compare(b.until), first(a.own, b.own),
			bytes.Compare(a.hash[:], b.hash[:]))
	})
	out := make([]Peer, len(all))
	for i, r := range all {
		out[i] = r.Peer
	}
	return out
}

// first orders what holds before what does not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
