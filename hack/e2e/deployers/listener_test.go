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

// outlet is a listener on the bootstrap host that can be down for a while: connections are refused then.
type outlet struct {
	network *testnode.Network
	addr    string

	mu    sync.Mutex
	up    *sync.Cond
	inner net.Listener
	ended bool
}

func newOutlet(t testing.TB, network *testnode.Network) *outlet {
	o := &outlet{network: network, addr: network.Bootstrap().String() + ":5000"}
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
	}, 10*time.Second, 10*time.Millisecond)
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
		if err == nil || !errors.Is(err, net.ErrClosed) {
			return c, err
		}
	}
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
