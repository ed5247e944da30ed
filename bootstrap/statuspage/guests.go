package statuspage

import (
	"context"
	"net"
	"slices"
	"sync"
)

const (
	// maxGuests bounds the connections on which no token was shown yet, and maxOfAddress those of one address: clients
	// without a token must not use up the host's.
	maxGuests    = 64
	maxOfAddress = 8
)

// guests is a listener that ends the oldest connection without a token when there is one too many. Who has a token
// shows it at once, so slow clients without one keep nobody out.
type guests struct {
	net.Listener

	mu      sync.Mutex
	waiting []*guest // oldest first
}

// guest is a connection below TLS.
type guest struct {
	net.Conn
	address string
	of      *guests
}

// Accept implements net.Listener.
func (l *guests) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		address = c.RemoteAddr().String()
	}
	g := &guest{Conn: c, address: address, of: l}
	if gone := l.seat(g); gone != nil {
		_ = gone.Conn.Close() // the server notices
	}
	return g, nil
}

// seat gives the connection that has to go for a new one; nil is none.
func (l *guests) seat(g *guest) (gone *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ofAddress []int
	for i, o := range l.waiting {
		if o.address == g.address {
			ofAddress = append(ofAddress, i)
		}
	}
	oldest := -1
	switch {
	case len(ofAddress) >= maxOfAddress:
		oldest = ofAddress[0]
	case len(l.waiting) >= maxGuests:
		oldest = 0
	}
	if oldest >= 0 {
		gone = l.waiting[oldest]
		l.waiting = slices.Delete(l.waiting, oldest, oldest+1)
	}
	l.waiting = append(l.waiting, g)
	return gone
}

// leave is for a connection that ended or whose client showed the token.
func (g *guest) leave() {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.of.waiting = slices.DeleteFunc(g.of.waiting, func(o *guest) bool { return o == g })
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}

// guestKey is the key of a request's *guest in its context.
type guestKey struct{}

// withGuest is an http.Server.ConnContext.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, c)
}

// admit notes that the client of a request has the token.
func admit(ctx context.Context) {
	if g, ok := ctx.Value(guestKey{}).(*guest); ok {
		g.leave()
	}
}
