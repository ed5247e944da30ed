package openshift_test

import (
	"io"
	"net"
	"sync"
)

// enough is what a shut tap lets through of each connection, in bytes: a handshake and a manifest, but no layer.
const enough = 128 << 10

// tap lets data through, or stops what is large.
type tap struct {
	mu   sync.Mutex
	turn *sync.Cond
	shut bool
	// stopped counts the connections that were.
	stopped int
}

func newTap() *tap {
	t := &tap{}
	t.turn = sync.NewCond(&t.mu)
	return t
}

// set shuts the tap or opens it.
func (t *tap) set(shut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = shut
	t.turn.Broadcast()
}

// stops is how many connections were stopped so far.
func (t *tap) stops() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// copy passes data on until one side ends.
func (t *tap) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := from.Read(buffer)
		total += n
		t.mu.Lock()
		if t.shut && total > enough {
			t.stopped++
		}
		for t.shut && total > enough {
			t.turn.Wait()
		}
		t.mu.Unlock()
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// relay passes connections on to what dial gives, answers through the tap, until the listener is closed.
func relay(l net.Listener, answers *tap, dial func() (net.Conn, error)) {
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := dial()
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				answers.copy(in, out)
			}()
		}
	}()
}
