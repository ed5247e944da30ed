package buildahengine_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/registry/registrytest"
)

// meeting counts the RUNs of two pools that are at work at once; each stays until it is let go, or with wait until the
// other came.
type meeting struct {
	mu       sync.Mutex
	now, max int
	both     chan struct{}
	wait     bool
}

func (m *meeting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.now++
	if m.max = max(m.max, m.now); m.max == 2 && m.now == 2 {
		close(m.both)
	}
	m.mu.Unlock()
	if m.wait {
		select {
		case <-m.both:
		case <-r.Context().Done():
		}
	} else {
		time.Sleep(300 * time.Millisecond) // long enough for the other to come, if it were let
	}
	m.mu.Lock()
	m.now--
	m.mu.Unlock()
	fmt.Fprintln(w, "go on")
}

// twoPools builds for two pools at once and tells how many of their RUNs were at work together.
func twoPools(t *testing.T, parallel int, wait bool) int {
	t.Helper()
	m := &meeting{both: make(chan struct{}), wait: wait}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	b := newBench(t, buildahengine.Options{Parallel: parallel})
	var all sync.WaitGroup
	for _, pool := range []string{"master", "worker"} {
		all.Go(func() {
			r := b.request("FROM configs\nRUN wget -O /usr/lib/pool " + server.URL + "/" + pool + "\n")
			r.Pool = pool
			_, err := b.builder.Build(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	b.clean()
	b.noGroups()
	return m.max
}

func TestParallelBuilds(t *testing.T) {
	assert.Equal(t, 2, twoPools(t, 2, true), "each RUN waits for the other pool's")
}

func TestParallelWithRoomForOne(t *testing.T) {
	assert.Equal(t, 1, twoPools(t, 1, false))
}

func TestMemoryOfABuildIsBounded(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
		if raw, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control"); err != nil ||
			!strings.Contains(string(raw), "memory") {
			t.Skip("this kernel or container gives no memory controller: the memory of builds cannot be bounded here")
		}
	}
	for _, isolation := range []string{buildahengine.IsolationChroot, buildahengine.IsolationAuto} {
		t.Run(isolation, func(t *testing.T) {
			b := newBench(t, buildahengine.Options{MaxMemory: 256 << 20, Isolation: isolation})
			// page cache gives way
			b.build("FROM configs\nRUN dd if=/dev/zero of=/usr/lib/big bs=1M count=400; rm /usr/lib/big; echo fits\n")
			f := b.fails(b.request("FROM configs\nRUN echo begins\nRUN dd if=/dev/zero of=/dev/null bs=600M count=1\n"))
			assert.Equal(t, build.ClassPolicy, f.Class, "%s %v", f.Error(), f.Excerpt)
			assert.Contains(t, f.Message, "memory limit of 256 MiB")
			assert.Equal(t, 3, f.Line)
			assert.Equal(t, 137, f.ExitCode)
			own := b.fails(b.request("FROM configs\nRUN exit 137\n"))
			assert.Equal(t, build.ClassUser, own.Class, "an exit code alone is no proof: %s", own.Error())
			b.clean()
			b.noGroups()
		})
	}
}

// stall stands between builder and registry and holds back all blobs above a size, like a line that hangs.
type stall struct {
	addr  string
	held  chan struct{}
	above atomic.Int64
}

func newStall(t *testing.T, to string, above int64) *stall {
	t.Helper()
	s := &stall{held: make(chan struct{}, 16)}
	s.above.Store(above)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = listener.Addr().String()
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go s.pass(in, to, s.above.Load())
		}
	}()
	return s
}

// request is one whose images all come and go through here.
func (s *stall) request(b *bench, r build.Request) build.Request {
	b.t.Helper()
	r.Base.Reference = strings.Replace(r.Base.Reference, b.reg.Addr, s.addr, 1)
	r.Target = strings.Replace(r.Target, b.reg.Addr, s.addr, 1)
	r.Registry.AuthFile = filepath.Join(b.t.TempDir(), "auth.json")
	registrytest.WriteAuthFile(b.t, r.Registry.AuthFile, s.addr, b.reg.Push)
	return r
}

// pass copies in both directions until the answers on this connection come to more than above bytes: only a blob does
// that.
func (s *stall) pass(in net.Conn, to string, above int64) {
	out, err := net.Dial("tcp", to)
	if err != nil {
		in.Close()
		return
	}
	go func() {
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	if n, _ := io.CopyN(in, out, above); n == above {
		s.held <- struct{}{}
		return // the connection stays open and silent
	}
	in.Close()
}
