package registry

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pieceBuffer is how much of a blob is read and sent at once: large enough that system calls do not count beside the
	// cipher, small enough for the second-level cache and for hundreds of clients.
	pieceBuffer = 256 << 10
	// corkBuffer holds the TLS records of a piece: 22 bytes (RFC 8446, 5.2) for each 16 KiB, and the header.
	corkBuffer = pieceBuffer + 8<<10
)

// corkConn is a client's connection below TLS. A handler that sends a lot holds it, so that the records of a piece,
// which TLS writes one by one, go out in one system call. The client has stallTimeout for what goes out at once.
type corkConn struct {
	net.Conn
	limited atomic.Bool // a deadline of somebody else's is in force
	mu      sync.Mutex
	held    []byte // nil: every write goes out at once
}

func (c *corkConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.held == nil:
		return c.send(p)
	case len(c.held)+len(p) > cap(c.held):
		if err := c.flush(); err != nil {
			return 0, err
		}
		if len(p) > cap(c.held) {
			return c.send(p)
		}
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

func (c *corkConn) flush() error {
	held := c.held
	c.held = c.held[:0]
	if len(held) == 0 {
		return nil
	}
	_, err := c.send(held)
	return err
}

func (c *corkConn) send(p []byte) (int, error) {
	if !c.limited.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline is for the handshake and for TLS's farewell, which have less time.
func (c *corkConn) SetWriteDeadline(at time.Time) error {
	c.limited.Store(!at.IsZero())
	return c.Conn.SetWriteDeadline(at)
}

// SetDeadline sets both.
func (c *corkConn) SetDeadline(at time.Time) error {
	c.limited.Store(!at.IsZero())
	return c.Conn.SetDeadline(at)
}

// hold gathers what is written into buf until release.
func (c *corkConn) hold(buf []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = buf[:0]
}

// release sends what was held. When that fails the connection is closed: TLS and net/http took the bytes for sent.
func (c *corkConn) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.flush()
	c.held = nil
	if err != nil {
		_ = c.Conn.Close() // its error would say no more
	}
	return err
}

// corkListener makes every connection one that can be held.
type corkListener struct{ net.Listener }

func (l corkListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corkConn{Conn: c}, nil
}

type corkKey struct{}

// withCork lets handlers find their connection; it is an http.Server.ConnContext. Connections without TLS have none.
func withCork(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		if cork, ok := t.NetConn().(*corkConn); ok {
			return context.WithValue(ctx, corkKey{}, cork)
		}
	}
	return ctx
}
