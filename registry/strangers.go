package registry

import (
	"container/list"
	"context"
	"net"
	"sync"
)

const (
	// strangerShare of MaxConnections is for clients that have shown no account yet: the others are always there for those
	// that have.
	strangerShare = 2
	// addressShare of MaxConnections is for one address's clients without an account: enough for the nodes behind one
	// gateway, which show theirs within a second.
	addressShare = 16
)

// strangers are the connections on which no account was shown yet, oldest first. One too many ends the oldest: a client
// with an account does not wait that long to show it.
type strangers struct {
	most, mostOfAddress int

	mu        sync.Mutex
	all       list.List // *pacedConn
	byAddress map[string]int
}

func newStrangers(maxConnections int) *strangers {
	return &strangers{most: max(1, maxConnections/strangerShare), mostOfAddress: max(1, maxConnections/addressShare),
		byAddress: map[string]int{}}
}

// add notes a new connection and returns the one that has to go for it; nil is none.
func (s *strangers) add(c *pacedConn) (gone *pacedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byAddress[c.address] >= s.mostOfAddress:
		gone = s.oldest(func(o *pacedConn) bool { return o.address == c.address })
	case s.all.Len() >= s.most:
		gone = s.oldest(func(*pacedConn) bool { return true })
	}
	if gone != nil {
		s.take(gone)
	}
	c.place = s.all.PushBack(c)
	s.byAddress[c.address]++
	return gone
}

func (s *strangers) oldest(fits func(*pacedConn) bool) *pacedConn {
	for e := s.all.Front(); e != nil; e = e.Next() {
		if c, ok := e.Value.(*pacedConn); ok && fits(c) {
			return c
		}
	}
	return nil
}

// remove is for a connection that ended or whose client showed an account.
func (s *strangers) remove(c *pacedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(c)
}

func (s *strangers) take(c *pacedConn) {
	if c.place == nil {
		return
	}
	s.all.Remove(c.place)
	c.place = nil
	if s.byAddress[c.address]--; s.byAddress[c.address] <= 0 {
		delete(s.byAddress, c.address)
	}
}

// connKey is the key of a request's *pacedConn in its context.
type connKey struct{}

// withConn is an http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// admit notes that the client of a request has an account.
func admit(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*pacedConn); ok && !c.admitted.Swap(true) {
		c.strangers.remove(c)
	}
}
