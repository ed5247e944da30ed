package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// clients is the number of nodes that fetch at the same time.
const clients = 64

// BenchmarkServe measures whole requests over TLS with keep-alive for a config of 450 kB. The server is a process of
// its own and the clients are in this one, on the same cores. In the field they are other machines: received are
// clients that take the encrypted answers off their sockets, every byte, and leave it at that: they are not even
// copied, and the client is woken once, when all have come. In identity and gzip the clients decrypt, which takes the
// server's cores as much time as encrypting. nginx, where it is installed, serves the same bytes from a file.
func BenchmarkServe(b *testing.B) {
	cert, key, roots := pair(b)
	address := alone(b, cert, key, roots)
	servers := map[string]string{"dayone": address}
	if _, err := exec.LookPath("nginx"); err == nil {
		servers["nginx"] = nginx(b, address, cert, key, roots)
	} else {
		b.Log("nginx is not installed, so nothing is compared with it")
	}
	for _, kind := range []string{"received", "identity", "gzip"} {
		for _, name := range slices.Sorted(maps.Keys(servers)) {
			if kind == "gzip" && name != "dayone" {
				continue
			}
			b.Run(kind+"/"+name, func(b *testing.B) { fetchAll(b, kind, servers[name], roots) })
		}
	}
}

// fetchAll lets all clients fetch from a server at the same time.
func fetchAll(b *testing.B, kind, address string, roots *x509.CertPool) {
	b.Helper()
	request := "GET /config/master HTTP/1.1\r\nHost: bench\r\nAccept: " + accept35 + "\r\n"
	if kind == "gzip" {
		request += "Accept-Encoding: gzip\r\n"
	}
	nodes := make([]*node, clients)
	for i := range nodes {
		nodes[i] = dial(b, address, roots, request+"\r\n")
		if kind == "received" {
			nodes[i].settle(b)
		}
	}
	size, err := nodes[0].fetch()
	require.NoError(b, err)
	measure(b, nodes, size)
	for _, n := range nodes {
		require.NoError(b, n.conn.Close())
	}
}

// largeStorage is a config's storage section of 450 kB.
func largeStorage() string {
	var files []string
	for i := range 54 {
		text := strings.Repeat(fmt.Sprintf("setting-%d = value of some length\n", i), 80)
		files = append(files,
			fmt.Sprintf(`{path: /etc/bench/%d, mode: 420, contents: {source: "data:text/plain;charset=utf-8;base64,%s"}}`, i,
				base64.StdEncoding.EncodeToString([]byte(text))))
	}
	return "storage: {files: [" + strings.Join(files, ", ") + "]}"
}

// measure lets all nodes fetch at the same time, again and again, answers of size bytes.
func measure(b *testing.B, nodes []*node, size int64) {
	b.Helper()
	took := make([][]time.Duration, len(nodes))
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
}

// node is a client with one connection and no goroutine of its own, as load generators are: what it does not spend, the
// server has.
type node struct {
	conn    *tls.Conn
	wire    *counted
	reader  *bufio.Reader
	request []byte
	// sealed is how many bytes an answer takes on the wire, for a node that does not decrypt; 0: it decrypts.
	sealed int64
	// wake is what wakeAt was told last.
	wake int64
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

// settle decrypts until TLS records have their full size, so that answers of one size take one size on the wire, and
// none from then on.
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
}

// fetch asks once and returns the length of the body, or of the whole sealed answer for a node that does not decrypt.
func (n *node) fetch() (int64, error) {
	if _, err := n.conn.Write(n.request); err != nil {
		return 0, err
	}
	if n.sealed > 0 {
		return n.sealed, n.drop()
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

// drop takes a whole answer off the socket, which with MSG_TRUNC is not copied.
func (n *node) drop() error {
	raw, err := n.wire.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	for left := n.sealed; left > 0; {
		var got int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			if failed = n.wakeAt(int(fd), left); failed != nil {
				return true
			}
			got, _, failed = unix.Recvfrom(int(fd), unread[:min(left, int64(len(unread)))], unix.MSG_TRUNC)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		if got == 0 {
			return io.ErrUnexpectedEOF
		}
		left -= int64(got)
	}
	return nil
}

// wakeAt has the client woken when so many bytes have come, or when no more fit into its window.
func (n *node) wakeAt(fd int, size int64) error {
	if n.wake == size {
		return nil
	}
	n.wake = size
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, int(size))
}

// unread says how much may be taken off a socket at a time; nothing is ever written to it.
var unread = make([]byte, 1<<20)
