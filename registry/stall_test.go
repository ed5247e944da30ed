package registry

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipes is a network of pipes without buffers: what is not read is not written, and its clock is the test's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

// overPipes runs a test against a server's handlers and connections on a clock of its own.
func overPipes(t *testing.T, change func(*Options), test func(t *testing.T, network *pipes, auth string)) {
	t.Helper()
	o := Options{Root: t.TempDir(), Listen: "127.0.0.1:0", InsecureHTTP: true,
		Users: []User{{Name: "u", Password: "p", Role: RolePush}}}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	require.NoError(t, s.openStorage())
	t.Cleanup(func() { require.NoError(t, s.release()) })
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	require.NoError(t, err)
	r.SetBasicAuth("u", "p")
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		srv, served := s.newHTTP(), make(chan struct{})
		go s.serve(srv, network, nil, served)
		test(t, network, "Authorization: "+r.Header.Get("Authorization"))
		require.NoError(t, srv.Close())
		<-served
		if s.fetches != nil {
			s.fetches()
			s.fetches = nil
		}
	})
}

func TestStalledBody(t *testing.T) {
	overPipes(t, nil, func(t *testing.T, network *pipes, _ string) {
		c := network.dial()
		began := time.Now()
		_, err := io.WriteString(c, "GET /v2/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		require.NoError(t, err)
		got, err := io.ReadAll(c)
		require.NoError(t, err, "the server closes")
		assert.Contains(t, string(got), "401")
		assert.LessOrEqual(t, time.Since(began), stallTimeout)
	})
}

func TestStalledAnswer(t *testing.T) {
	overPipes(t, nil, func(t *testing.T, network *pipes, auth string) {
		for _, header := range []string{"Host: x", "Host: x\r\n" + auth} {
			c := network.dial()
			_, err := io.WriteString(c, "GET /v2/ HTTP/1.1\r\n"+header+"\r\n\r\n")
			require.NoError(t, err)
			time.Sleep(stallTimeout + time.Second)
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
	})
}

func TestSlowTransfers(t *testing.T) {
	overPipes(t, nil, func(t *testing.T, network *pipes, auth string) {
		c := network.dial()
		in := bufio.NewReader(c)
		began := time.Now()
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		d := digest.FromBytes(data)
		_, err := fmt.Fprintf(c,
			"POST /v2/a/b/blobs/uploads/?digest=%s HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: %d\r\n\r\n", d, auth, len(data))
		require.NoError(t, err)
		for part := range slices.Chunk(data, 64<<10) {
			time.Sleep(stallTimeout / 2)
			_, err := c.Write(part)
			require.NoError(t, err)
		}
		time.Sleep(stallTimeout / 2) // the answer waits that long for its client
		a, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, a.StatusCode)

		_, err = fmt.Fprintf(c, "GET /v2/a/b/blobs/%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", d, auth)
		require.NoError(t, err)
		a, err = http.ReadResponse(in, nil)
		require.NoError(t, err)
		var got bytes.Buffer
		for err == nil {
			time.Sleep(stallTimeout / 8)
			_, err = io.CopyN(&got, a.Body, 64<<10)
		}
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, d, digest.FromBytes(got.Bytes()))
		assert.Greater(t, time.Since(began), 5*stallTimeout)

		_, err = fmt.Fprintf(c, "HEAD /v2/a/b/blobs/%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", d, auth)
		require.NoError(t, err)
		a, err = http.ReadResponse(in, &http.Request{Method: http.MethodHead})
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, a.StatusCode, "the connection serves on")
	})
}

func TestMaxConnections(t *testing.T) {
	overPipes(t, func(o *Options) { o.MaxConnections = 1 }, func(t *testing.T, network *pipes, auth string) {
		first := network.dial()
		second := make(chan net.Conn, 1)
		go func() { second <- network.dial() }()
		synctest.Wait()
		require.Empty(t, second)
		require.NoError(t, first.Close())
		c := <-second
		_, err := io.WriteString(c, strings.Join([]string{"GET /v2/ HTTP/1.1", "Host: x", auth, "", ""}, "\r\n"))
		require.NoError(t, err)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, a.StatusCode)
	})
}
