package registry

import (
	"net"
	"net/http"
	"sync"
)

// freshConns are connections on which no request came yet. http.Server.Shutdown takes them for busy during five seconds; clients open
// such connections ahead of need, and a restart would wait for each.
type freshConns struct {
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	stopping bool
}

// track is an http.Server.ConnState.
func (f *freshConns) track(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state != http.StateNew {
		delete(f.conns, c)
		return
	}
	if f.stopping {
		_ = c.Close() // the server is going away, its own close of the connection reports nothing either
		return
	}
	if f.conns == nil {
		f.conns = map[net.Conn]struct{}{}
	}
	f.conns[c] = struct{}{}
}

// shut closes what is fresh now and what comes until open.
func (f *freshConns) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = true
	for c := range f.conns {
		_ = c.Close() // no request is lost: none was read
	}
}

// open lets the next Start use fresh connections again.
func (f *freshConns) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = false
	f.conns = nil
}
