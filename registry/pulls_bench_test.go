package registry

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// BenchmarkPulls200Clients lets 200 clients pull an image of 200 MB at once from a server in a process of its own, and
// tells the largest memory that the process had.
func BenchmarkPulls200Clients(b *testing.B) {
	const clients, layers, size = 200, 4, 50_000_000
	root := b.TempDir()
	srv := own(b, root)
	var paths []string
	for range layers {
		data := blobOf(b, size)
		pushTo(b, srv.URL, "bench/pulls", data)
		paths = append(paths, "/v2/bench/pulls/blobs/"+digest.FromBytes(data).String())
	}
	copyOf := b.TempDir() // the first server keeps its lock on root
	require.NoError(b, os.CopyFS(copyOf, os.DirFS(root)))

	exe, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "DAYONE_TEST_REGISTRY_CHILD="+copyOf+"|p")
	_, err = cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)

	b.ResetTimer()
	for range b.N {
		var wg sync.WaitGroup
		for range clients {
			c := newRawClient(b, peer{addr: strings.TrimSpace(addr)}, "PATH")
			wg.Go(func() {
				sink := make([]byte, 512<<10)
				template := c.req
				for _, p := range paths {
					c.req = bytes.Replace(template, []byte("PATH"), []byte(p), 1)
					c.req = bytes.Replace(c.req, []byte("dTpw"), []byte("cHVzaDpw"), 1) // push:p
					if n, err := c.get(sink); err != nil || n != size {
						b.Errorf("pulled %d bytes: %v", n, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	b.StopTimer()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	require.NoError(b, err)
	_, hwm, _ := strings.Cut(string(status), "VmHWM:")
	var kb int
	_, err = fmt.Sscan(hwm, &kb)
	require.NoError(b, err)
	b.ReportMetric(float64(kb)/1024, "server-MiB")
	b.ReportMetric(float64(b.N)*clients*layers*size/(1<<30)/b.Elapsed().Seconds(), "GiB/s")
}
