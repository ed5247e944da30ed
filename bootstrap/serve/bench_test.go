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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clients is the number of nodes that fetch at the same time.
const clients = 64

// BenchmarkServe measures whole requests over TLS with keep-alive for a config of 450 kB. The clients are in the same
// process and decrypt on the server's cores.
func BenchmarkServe(b *testing.B) {
	dir := b.TempDir()
	tree(b, dir, largeStorage())
	cert, key, roots := pair(b)
	s, err := New(Options{BaseDir: dir, Kubeconfig: kubeconfig(b, b.TempDir()), SecureListen: "127.0.0.1:0",
		CertFile: cert, KeyFile: key})
	require.NoError(b, err)
	running(b, s)
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients,
				TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
			defer client.CloseIdleConnections()
			measure(b, func() error { return fetch(b, client, "https://"+s.SecureAddr()+"/config/master", encoding) })
		})
	}
}

func fetch(b *testing.B, client *http.Client, url, encoding string) error {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", accept35)
	r.Header.Set("Accept-Encoding", encoding)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch config: %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// measure lets all clients fetch at the same time, again and again.
func measure(b *testing.B, fetch func() error) {
	b.Helper()
	took := make([][]time.Duration, clients)
	b.ResetTimer()
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for range (b.N + clients - 1) / clients {
				started := time.Now()
				if err := fetch(); err != nil {
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
