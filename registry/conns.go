package registry

import (
	"net"
	"net/http"
	"sync"
)

// openConns are a server's connections, for its stop. http.Server.Shutdown takes those on which no request came yet for
// busy during five seconds; clients open such connections ahead of need, and a restart would wait for each.
// http.Server.Close closes one after another.
type openConns struct {
	mu       sync.Mutex
	conns    map[net.Conn]bool // true: no request came yet
	stopping bool
}

// track is an http.Server.ConnState.
func (o *openConns) track(c net.Conn, state http.ConnState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(o.conns, c)
		return
	}
	if state == http.StateNew && o.stopping {
		_ = c.Close() // the server is going away, its own close of the connection reports nothing either
		return
	}
	if o.conns == nil {
		o.conns = map[net.Conn]bool{}
	}
	o.conns[c] = state == http.StateNew
}

// shut closes what is fresh now and what comes until open.
func (o *openConns) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopping = true
	for c, fresh := range o.conns {
		if fresh {
			_ = c.Close() // no request is lost: none was read
		}
	}
}

// cut closes what is still open below TLS. A closed TLS connection takes leave of its client first, and of one that
// takes nothing off it for five seconds.
func (o *openConns) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.conns {
		if t, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = t.NetConn()
		}
		_ = c.Close() // who uses it notices
	}
}

// open lets the next Start use fresh connections again.
func (o *openConns) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopping = false
	o.conns = nil
}
