package forwarder

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"dayone.dev/dayone/registry/peers"
)

// maxErrorText bounds the text of an error in the state, in bytes.
const maxErrorText = 500

// State is what a forwarder says of itself.
type State struct {
	// Listen is where clients find it; empty: it does not serve.
	Listen string `json:"listen,omitempty"`
	// Registry is whose images it gives.
	Registry string `json:"registry,omitempty"`
	// Error is why it does not serve, or why it goes on with what it read before.
	Error string `json:"error,omitempty"`
	// Peers in the order in which they are asked now.
	Peers []PeerState `json:"peers"`
	// Transfers of blobs are under way; Switches were made in the middle of one; Broken ones had no peer left, or a wrong
	// digest.
	Transfers int64 `json:"transfers"`
	Switches  int64 `json:"switches"`
	Broken    int64 `json:"broken"`
}

// PeerState is how a peer did since the forwarder started.
type PeerState struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Answers it gave, "it is not here" among them, and failures to answer.
	Answers  int64 `json:"answers"`
	Failures int64 `json:"failures"`
	Bytes    int64 `json:"bytes"`
	// BytesPerSecond is of its last answer that had at least 256 KiB.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// AwayUntil: it failed, and others are asked first until then.
	AwayUntil   *time.Time `json:"awayUntil,omitempty"`
	LastError   string     `json:"lastError,omitempty"`
	LastErrorAt *time.Time `json:"lastErrorAt,omitempty"`

	health peers.Health
}

// outcome is how one attempt at a peer went.
type outcome struct {
	bytes int64
	took  time.Duration
	err   error
}

// state is safe for concurrent use.
type state struct {
	mu    sync.Mutex
	now   State
	peers map[string]*PeerState
}

func (s *state) peer(p peers.Peer) *PeerState {
	have := s.peers[p.Name]
	if have == nil || have.Address != p.Address { // another machine of that name
		have = &PeerState{Name: p.Name, Address: p.Address}
		s.peers[p.Name] = have
	}
	return have
}

// note counts an attempt. What is the client's fault, or nobody's, says nothing about the peer.
func (s *state) note(p peers.Peer, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.peer(p)
	have.Bytes += o.bytes
	if o.bytes >= pieceSize && o.took > 0 {
		have.BytesPerSecond = int64(float64(o.bytes) / o.took.Seconds())
	}
	var end final
	var busy busyError
	var lie lieError
	switch {
	case o.err == nil, errors.Is(o.err, errLost):
		have.Answers++
		have.health = peers.Health{}
	case errors.As(o.err, &lie): // spoiled may have said so before
		have.fail(o.err, time.Minute)
	case errors.As(o.err, &end):
	case errors.As(o.err, &busy):
		have.fail(o.err, busy.after)
	default:
		have.fail(o.err, 0)
	}
}

func (p *PeerState) fail(err error, pause time.Duration) {
	now := time.Now()
	p.Failures++
	p.health = p.health.Failed(now, pause)
	text := err.Error()
	p.LastError, p.LastErrorAt = strings.ToValidUTF8(text[:min(len(text), maxErrorText)], ""), &now
}

// lied notes all from whom a blob with a wrong digest came: one of them sent what is not in it.
func (s *state) lied(names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names[:len(names)-1] { // the last one's attempt is noted by who made it
		if p := s.peers[name]; p != nil {
			p.fail(err, time.Minute)
		}
	}
}

func (s *state) health() map[string]peers.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]peers.Health, len(s.peers))
	for name, p := range s.peers {
		out[name] = p.health
	}
	return out
}

func (s *state) transfers(n int64) { s.count(&s.now.Transfers, n) }
func (s *state) switched()         { s.count(&s.now.Switches, 1) }
func (s *state) broken()           { s.count(&s.now.Broken, 1) }

func (s *state) count(what *int64, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what += n
}

// serves notes where the forwarder serves, and why not.
func (s *state) serves(listen, registry string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Listen, s.now.Registry, s.now.Error = listen, registry, ""
	if err != nil {
		s.now.Error = err.Error()
	}
}

// show gives the state with the peers of list, in node's order. Peers that are not in it any more are forgotten.
func (s *state) show(list peers.List, node string) State {
	health, now := s.health(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[string]*PeerState{}
	out := s.now
	out.Peers = []PeerState{}
	for _, p := range list.Order(node, now, health) {
		have := s.peer(p)
		kept[p.Name] = have
		shown := *have
		if until := have.health.Until; until.After(now) {
			shown.AwayUntil = &until
		}
		out.Peers = append(out.Peers, shown)
	}
	s.peers = kept
	return out
}

// WriteMetrics writes the state in Prometheus' text format, version 0.0.4.
func (st State) WriteMetrics(w io.Writer) {
	st.Peers = slices.Clone(st.Peers)
	slices.SortFunc(st.Peers, func(a, b PeerState) int { return strings.Compare(a.Name, b.Name) })
	head := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP dayone_forwarder_%s %s\n# TYPE dayone_forwarder_%s %s\n", name, help, name, kind)
	}
	of := func(name, kind, help string, value func(PeerState) int64) {
		head(name, kind, help)
		for _, p := range st.Peers {
			fmt.Fprintf(w, "dayone_forwarder_%s{peer=%q} %d\n", name, p.Name, value(p))
		}
	}
	of("answers_total", "counter", "Answers of a control-plane node's registry.",
		func(p PeerState) int64 { return p.Answers })
	of("failures_total", "counter", "Failures of it to answer.", func(p PeerState) int64 { return p.Failures })
	of("bytes_total", "counter", "Bytes that came from it.", func(p PeerState) int64 { return p.Bytes })
	of("peer_away", "gauge", "1 when it failed and others are asked first.", func(p PeerState) int64 {
		if p.AwayUntil != nil {
			return 1
		}
		return 0
	})
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{{"transfers", "gauge", "Blobs under way.", st.Transfers},
		{"switches_total", "counter", "Changes of the source in the middle of a blob.", st.Switches},
		{"broken_total", "counter", "Blobs that could not be brought to their end.", st.Broken}} {
		head(m.name, m.kind, m.help)
		fmt.Fprintf(w, "dayone_forwarder_%s %d\n", m.name, m.value)
	}
}
