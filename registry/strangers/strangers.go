package strangers

import (
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Listener ends the oldest connection of a stranger when there is one too many: who has an account or a token shows it
// at once, so slow clients without one keep nobody out. It is safe for concurrent use.
type Listener struct {
	net.Listener
	most, mostOfAddress int

	mu        sync.Mutex
	all       list.List // *conn, oldest first
	byAddress map[string]int
}

// Listen bounds the connections of strangers, and those of one address; each limit is at least one.
func Listen(l net.Listener, most, mostOfAddress int) *Listener {
	return &Listener{Listener: l, most: max(1, most), mostOfAddress: max(1, mostOfAddress), byAddress: map[string]int{}}
}

// conn is a client's connection.
type conn struct {
	net.Conn
	listener *Listener
	admitted atomic.Bool   // Admit was called; requests after the first need no lock
	address  string        // of the client, without the port
	place    *list.Element // among the strangers; nil when it is none. The listener guards it
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
	if err != nil {
		address = accepted.RemoteAddr().String()
	}
	c := &conn{Conn: accepted, listener: l, address: address}
	if gone := l.add(c); gone != nil {
		_ = gone.Conn.Close() // who uses it notices
	}
	return c, nil
}

// add notes a new connection and returns the one that has to go for it; nil is none.
func (l *Listener) add(c *conn) (gone *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byAddress[c.address] >= l.mostOfAddress:
		gone = l.oldest(func(o *conn) bool { return o.address == c.address })
	case l.all.Len() >= l.most:
		gone = l.oldest(func(*conn) bool { return true })
	}
	if gone != nil {
		l.take(gone)
	}
	c.place = l.all.PushBack(c)
	l.byAddress[c.address]++
	return gone
}

func (l *Listener) oldest(fits func(*conn) bool) *conn {
	for e := l.all.Front(); e != nil; e = e.Next() {
		if c, ok := e.Value.(*conn); ok && fits(c) {
			return c
		}
	}
	return nil
}

func (l *Listener) take(c *conn) {
	if c.place == nil {
		return
	}
	l.all.Remove(c.place)
	c.place = nil
	if l.byAddress[c.address]--; l.byAddress[c.address] <= 0 {
		delete(l.byAddress, c.address)
	}
}

// leave is for a connection that ended or whose client is no stranger any more.
func (c *conn) leave() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.take(c)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// key is that of a request's *conn in its context.
type key struct{}

// ConnContext is an http.Server.ConnContext that lets Admit find the connection of a request, also below TLS and other
// wrappers that have NetConn.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	for {
		if found, ok := c.(*conn); ok {
			return context.WithValue(ctx, key{}, found)
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return ctx
		}
		c = wrapper.NetConn()
	}
}

// Admit notes that the client of a request has shown who it is.
func Admit(ctx context.Context) {
	if c, ok := ctx.Value(key{}).(*conn); ok && !c.admitted.Swap(true) {
		c.leave()
	}
}
