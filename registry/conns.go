package registry

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// openConns are a server's connections, for its stop. http.Server.Shutdown takes those on which no request came yet for
// busy during five seconds; clients open such connections before they need them, and a restart would wait for each.
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

const (
	// strangerShare of MaxConnections is for clients that have shown no account yet: the others are always there for those
	// that have.
	strangerShare = 2
	// addressShare of MaxConnections is for one address's clients without an account: enough for the nodes behind one
	// gateway, which show theirs within a second.
	addressShare = 16
)

// pacedListener gives the client of every connection stallTimeout for what is sent at once.
type pacedListener struct{ net.Listener }

func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &pacedConn{Conn: c}, nil
}

// pacedConn is a client's connection below TLS.
type pacedConn struct {
	net.Conn
	limited atomic.Bool // somebody else's deadline is in force
}

// NetConn is the connection below, for package strangers.
func (c *pacedConn) NetConn() net.Conn { return c.Conn }

func (c *pacedConn) Write(p []byte) (int, error) {
	if !c.limited.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline is for a piece of a blob, and for the handshake and TLS's farewell, which have less time.
func (c *pacedConn) SetWriteDeadline(at time.Time) error {
	c.limited.Store(!at.IsZero())
	return c.Conn.SetWriteDeadline(at)
}

// SetDeadline sets both.
func (c *pacedConn) SetDeadline(at time.Time) error {
	c.limited.Store(!at.IsZero())
	return c.Conn.SetDeadline(at)
}
