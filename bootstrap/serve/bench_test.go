package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clients is the number of nodes that fetch at the same time.
const clients = 64

// BenchmarkServe measures whole requests over TLS with keep-alive for a config of 450 kB. In identity and gzip the clients decrypt on the
// server's own cores. In the field they are other machines: received are clients that take the encrypted answers off their sockets, every byte,
// and leave it at that.
func BenchmarkServe(b *testing.B) {
	for _, c := range []struct {
		name             string
		packed, received bool
	}{{name: "identity"}, {name: "gzip", packed: true}, {name: "received", received: true}} {
		b.Run(c.name, func(b *testing.B) {
			cert, key, roots := pair(b)
			s := newServer(b, largeStorage(), func(o *Options) { o.SecureListen, o.CertFile, o.KeyFile = "127.0.0.1:0", cert, key })
			stop := running(b, s)
			request := "GET /config/master HTTP/1.1\r\nHost: bench\r\nAccept: " + accept35 + "\r\n"
			if c.packed {
				request += "Accept-Encoding: gzip\r\n"
			}
			nodes := make([]*node, clients)
			for i := range nodes {
				nodes[i] = dial(b, s.SecureAddr(), roots, request+"\r\n")
				if c.received {
					nodes[i].settle(b)
				}
			}
			size, err := nodes[0].fetch()
			require.NoError(b, err)
			measure(b, nodes, size)
			for _, n := range nodes {
				require.NoError(b, n.conn.Close())
			}
			require.NoError(b, stop())
		})
	}
}

// largeStorage is a config's storage section of 450 kB.
func largeStorage() string {
	var files []string
	for i := range 54 {
		text := strings.Repeat(fmt.Sprintf("setting-%d = value of some length\n", i), 80)
		files = append(files, fmt.Sprintf(`{path: /etc/bench/%d, mode: 420, contents: {source: "data:text/plain;charset=utf-8;base64,%s"}}`, i, base64.StdEncoding.EncodeToString([]byte(text))))
	}
	return "storage: {files: [" + strings.Join(files, ", ") + "]}"
}

// measure lets all nodes fetch at the same time, again and again, answers of size bytes.
func measure(b *testing.B, nodes []*node, size int64) {
	b.Helper()
	took := make([][]time.Duration, len(nodes))
	before := cpuTime(b)
	b.ResetTimer()
	var group sync.WaitGroup
	for c, n := range nodes {
		group.Go(func() {
			for range (b.N + len(nodes) - 1) / len(nodes) {
				started := time.Now()
				if _, err := n.fetch(); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(started))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(size), "bytes/answer")
	// Client and server together: what the machine's other work leaves of the cores does not change it.
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(len(all)), "cpu-ms/request")
}

// node is a client with one connection and no goroutine of its own, as load generators are: what it does not spend, the server has.
type node struct {
	conn    *tls.Conn
	wire    *counted
	reader  *bufio.Reader
	request []byte
	// sealed is how many bytes an answer takes on the wire, for a node that does not decrypt; 0: it decrypts.
	sealed int64
}

// counted tells how many bytes came over a connection.
type counted struct {
	net.Conn
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n += int64(n)
	return n, err
}

func dial(b *testing.B, address string, roots *x509.CertPool, request string) *node {
	b.Helper()
	plain, err := net.Dial("tcp", address)
	require.NoError(b, err)
	wire := &counted{Conn: plain}
	conn := tls.Client(wire, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
	require.NoError(b, conn.Handshake())
	return &node{conn: conn, wire: wire, reader: bufio.NewReaderSize(conn, 64<<10), request: []byte(request)}
}

// settle decrypts until TLS records have their full size, so that answers of one size take one size on the wire, and none from then on.
func (n *node) settle(b *testing.B) {
	b.Helper()
	for last := int64(-1); n.sealed == 0; {
		before := n.wire.n
		_, err := n.fetch()
		require.NoError(b, err)
		size := n.wire.n - before
		if size == last {
			n.sealed = size
		}
		last = size
	}
	n.reader = bufio.NewReaderSize(n.wire, 64<<10)
}

// fetch asks once and returns the length of the body, or of the whole sealed answer for a node that does not decrypt.
func (n *node) fetch() (int64, error) {
	if _, err := n.conn.Write(n.request); err != nil {
		return 0, err
	}
	if n.sealed > 0 {
		return io.CopyN(io.Discard, n.reader, n.sealed)
	}
	answer, err := http.ReadResponse(n.reader, nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, errors.New(answer.Status)
	}
	return io.Copy(io.Discard, answer.Body)
}

// cpuTime is what this process has used so far.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
