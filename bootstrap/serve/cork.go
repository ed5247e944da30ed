package serve

import (
	"context"
	"net"
	"net/http"
)

// corkBytes is how much of an answer is handed to the kernel at a time: TLS alone writes one record of 16 KiB a call, and the calls
// cost more than the encryption.
const corkBytes = 256 << 10

// corkListener makes connections whose writes can be held together.
type corkListener struct{ net.Listener }

// Accept waits for a connection.
func (l corkListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corkConn{Conn: conn}, nil
}

// corkConn holds writes together while it is corked. It is used by the one goroutine that answers a request; TLS writes of other
// goroutines (alerts at a close) come when no answer is under way.
type corkConn struct {
	net.Conn
	corked bool
	held   []byte
}

// Write collects while corked, else writes at once.
func (c *corkConn) Write(p []byte) (int, error) {
	if !c.corked {
		return c.Conn.Write(p)
	}
	if len(c.held)+len(p) > cap(c.held) {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	if len(p) > cap(c.held) {
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

func (c *corkConn) flush() error {
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.held)
	c.held = c.held[:0]
	return err
}

type corkKey struct{}

// rememberCork makes the connection known to its requests.
func rememberCork(ctx context.Context, conn net.Conn) context.Context {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	if c, ok := conn.(*corkConn); ok {
		return context.WithValue(ctx, corkKey{}, c)
	}
	return ctx
}
