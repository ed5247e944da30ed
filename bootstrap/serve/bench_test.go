package serve

import (
	"crypto/tls"
	"encoding/base64"
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
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: clients, DisableCompression: true, ReadBufferSize: 64 << 10}
			fetch := func() (int64, error) {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+s.SecureAddr()+"/config/master", nil)
				if err != nil {
					return 0, err
				}
				r.Header.Set("Accept", accept35)
				if packed {
					r.Header.Set("Accept-Encoding", "gzip")
				}
				answer, err := transport.RoundTrip(r)
				if err != nil {
					return 0, err
				}
				defer answer.Body.Close()
				return io.Copy(io.Discard, answer.Body)
			}
			size, err := fetch()
			require.NoError(b, err)
			took := make([][]time.Duration, clients)
			before := cpuTime(b)
			b.ResetTimer()
			var group sync.WaitGroup
			for c := range clients {
				group.Go(func() {
					for range (b.N + clients - 1) / clients {
						started := time.Now()
						if _, err := fetch(); err != nil {
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
			transport.CloseIdleConnections()
			require.NoError(b, stop())
		})
	}
}

// cpuTime is what this process has used so far.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
