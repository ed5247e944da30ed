package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// corkBytes is how much of an answer is handed to the kernel at a time: TLS alone writes one record of 16 KiB a call,
	// and the calls cost more than the encryption.
	corkBytes = 512 << 10
	// maxCorks bounds the memory of all corks to 32 MiB: a slow reader keeps its cork until the kernel has taken
	// everything, minutes long. Of those who read quickly only as many have one as there are turns, and a few that wait
	// for a full socket.
	maxCorks = 64
)

// corkListener makes connections whose writes can be held together.
type corkListener struct{ net.Listener }

// Accept waits for a connection.
func (l corkListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corkConn{Conn: conn, answered: time.Now()}, nil
}

// corkConn holds writes together while it is corked.
type corkConn struct {
	net.Conn
	mu   sync.Mutex
	held *[]byte // nil when not corked
	// answered is when the last answer was written, at first when the connection was accepted. Only the request under way
	// uses it.
	answered time.Time
}

// Write collects while corked, else writes at once.
func (c *corkConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return c.Conn.Write(p)
	}
	if len(*c.held)+len(p) > corkBytes {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	if len(p) > corkBytes {
		return c.Conn.Write(p)
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// flush needs the lock.
func (c *corkConn) flush() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}

// cork starts to collect into a buffer. With none free writes go on at once, as without a cork.
func (c *corkConn) cork(from *corks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = from.take()
}

// uncork writes what has been collected and gives the buffer back.
func (c *corkConn) uncork(to *corks) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.flush()
	to.give(c.held)
	c.held = nil
	return err
}

// corks are the buffers of one server, at most maxCorks at a time.
type corks struct {
	pool  sync.Pool
	taken atomic.Int64
}

// take returns an empty buffer, nil when all are in use: nobody waits for slow readers.
func (c *corks) take() *[]byte {
	if c.taken.Add(1) > maxCorks {
		c.taken.Add(-1)
		return nil
	}
	if buffer, ok := c.pool.Get().(*[]byte); ok {
		return buffer
	}
	buffer := make([]byte, 0, corkBytes)
	return &buffer
}

func (c *corks) give(buffer *[]byte) {
	*buffer = (*buffer)[:0]
	c.pool.Put(buffer)
	c.taken.Add(-1)
}

// writeBody writes an answer's body in its turn and in large pieces if the connection can hold writes together.
func (s *Server) writeBody(w http.ResponseWriter, r *http.Request, body []byte) error {
	c, ok := r.Context().Value(corkKey{}).(*corkConn)
	if !ok {
		_, err := w.Write(body)
		return err
	}
	if len(body) < turnBytes {
		runtime.Gosched() // requests that came meanwhile are read first
	} else {
		defer s.turns.take(c.answered)()
	}
	c.cork(&s.corks)
	_, err := w.Write(body)
	err = errors.Join(err, c.uncork(&s.corks))
	c.answered = time.Now()
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
