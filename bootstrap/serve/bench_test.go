package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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

// BenchmarkServe measures whole requests over TLS with keep-alive, client and server on the same cores, for a config of 450 kB.
func BenchmarkServe(b *testing.B) {
	for _, packed := range []bool{false, true} {
		b.Run(map[bool]string{false: "identity", true: "gzip"}[packed], func(b *testing.B) {
			cert, key, roots := pair(b)
			var files []string
			for i := range 54 {
				text := strings.Repeat(fmt.Sprintf("setting-%d = value of some length\n", i), 80)
				files = append(files, fmt.Sprintf(`{path: /etc/bench/%d, mode: 420, contents: {source: "data:text/plain;charset=utf-8;base64,%s"}}`, i, base64.StdEncoding.EncodeToString([]byte(text))))
			}
			s := newServer(b, "storage: {files: ["+strings.Join(files, ", ")+"]}", func(o *Options) {
				o.SecureListen, o.CertFile, o.KeyFile = "127.0.0.1:0", cert, key
			})
			stop := running(b, s)
			request := "GET /config/master HTTP/1.1\r\nHost: bench\r\nAccept: " + accept35 + "\r\n"
			if packed {
				request += "Accept-Encoding: gzip\r\n"
			}
			nodes := make([]*node, clients)
			for i := range nodes {
				nodes[i] = dial(b, s.SecureAddr(), roots, request+"\r\n")
			}
			size, err := nodes[0].fetch()
			require.NoError(b, err)
			took := make([][]time.Duration, clients)
			before := cpuTime(b)
			b.ResetTimer()
			var group sync.WaitGroup
			for c := range clients {
				group.Go(func() {
					for range (b.N + clients - 1) / clients {
						started := time.Now()
						if _, err := nodes[c].fetch(); err != nil {
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
			for _, n := range nodes {
				require.NoError(b, n.conn.Close())
			}
			require.NoError(b, stop())
		})
	}
}

// node is a client with one connection and no goroutine of its own, as load generators are: what it does not spend, the server has.
type node struct {
	conn    *tls.Conn
	reader  *bufio.Reader
	request []byte
}

func dial(b *testing.B, address string, roots *x509.CertPool, request string) *node {
	b.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	require.NoError(b, err)
	return &node{conn: conn, reader: bufio.NewReaderSize(conn, 64<<10), request: []byte(request)}
}

// fetch asks once and returns the length of the body.
func (n *node) fetch() (int64, error) {
	if _, err := n.conn.Write(n.request); err != nil {
		return 0, err
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
