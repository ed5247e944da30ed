package registry

import (
	"container/list"
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

// pacedListener gives the client of every connection stallTimeout for what is sent at once, and bounds the connections
// without an account.
type pacedListener struct {
	net.Listener
	strangers *strangers
}

func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		address = c.RemoteAddr().String()
	}
	paced := &pacedConn{Conn: c, strangers: l.strangers, address: address}
	if gone := l.strangers.add(paced); gone != nil {
		_ = gone.Close() // who uses it notices
	}
	return paced, nil
}

// pacedConn is a client's connection below TLS.
type pacedConn struct {
	net.Conn
	limited   atomic.Bool // somebody else's deadline is in force
	admitted  atomic.Bool // the client has shown an account
	strangers *strangers
	address   string        // of the client, without the port
	place     *list.Element // among the strangers, which guard it; nil when it is none
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.strangers.remove(c)
	return c.Conn.Close()
}

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
