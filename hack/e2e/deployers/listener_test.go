package deployers

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
)

// outlet is a listener on the bootstrap host that can be down for a while: connections are refused then, and those that
// were open end.
type outlet struct {
	network *testnode.Network
	addr    string

	mu    sync.Mutex
	up    *sync.Cond
	inner net.Listener
	open  map[net.Conn]bool
	ended bool
}

// through is a connection through an outlet.
type through struct {
	net.Conn
	o *outlet
}

func (c *through) Close() error {
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	delete(c.o.open, c.Conn)
	return c.Conn.Close()
}

func newOutlet(t testing.TB, network *testnode.Network) *outlet {
	o := &outlet{network: network, addr: network.Bootstrap().String() + ":5000", open: map[net.Conn]bool{}}
	o.up = sync.NewCond(&o.mu)
	o.setUp(t)
	return o
}

func (o *outlet) setUp(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	up := o.inner != nil
	o.mu.Unlock()
	if up {
		return
	}
	var l net.Listener
	// A listener that was closed goes when the Accept that waits on it has returned.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, o.network.Do(func() (err error) {
			l, err = net.Listen("tcp", o.addr)
			return err
		}))
	}, time.Minute, 10*time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inner = l
	o.up.Broadcast()
}

func (o *outlet) setDown(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inner != nil {
		require.NoError(t, o.inner.Close())
		o.inner = nil
	}
	for c := range o.open {
		_ = c.Close() // the other side may have
	}
	clear(o.open)
}

// Accept waits while the outlet is down.
func (o *outlet) Accept() (net.Conn, error) {
	for {
		o.mu.Lock()
		for o.inner == nil && !o.ended {
			o.up.Wait()
		}
		l, ended := o.inner, o.ended
		o.mu.Unlock()
		if ended {
			return nil, net.ErrClosed
		}
		c, err := l.Accept()
		if err == nil && o.admit(l, c) {
			return &through{c, o}, nil
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return nil, err
		}
	}
}

// admit refuses a connection that came just before its listener went down.
func (o *outlet) admit(l net.Listener, c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inner != l {
		_ = c.Close() // nothing was said on it
		return false
	}
	o.open[c] = true
	return true
}

// Close ends it for good.
func (o *outlet) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.up.Broadcast()
	if o.inner == nil {
		return nil
	}
	return o.inner.Close()
}

// Addr is where it listens when it is up.
func (o *outlet) Addr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", o.addr)
	if err != nil {
		return &net.TCPAddr{}
	}
	return a
}
