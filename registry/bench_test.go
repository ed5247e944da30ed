package registry

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// peers are measured side by side on the same disk: our server with accounts, and distribution's own handlers without any.
func peers(b *testing.B, f func(b *testing.B, addr string)) {
	b.Run("dayone", func(b *testing.B) {
		s, err := New(Options{Root: b.TempDir(), Listen: "127.0.0.1:0", InsecureHTTP: true, Users: []User{{Name: "u", Password: "p", Role: RolePush}}})
		require.NoError(b, err)
		require.NoError(b, s.Start())
		b.Cleanup(func() { require.NoError(b, s.Shutdown(context.Background())) })
		f(b, s.Addr())
	})
	b.Run("distribution", func(b *testing.B) {
		f(b, strings.TrimPrefix(plain(b, b.TempDir()).URL, "http://"))
	})
}

// rawClient sends one prepared request again and again over one connection, with as little work of its own as possible.
type rawClient struct {
	c   net.Conn
	in  *bufio.Reader
	req []byte
}

func newRawClient(b *testing.B, addr, path string) *rawClient {
	b.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	req := "GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dTpw\r\nAccept: application/vnd.oci.image.manifest.v1+json\r\n\r\n"
	return &rawClient{c: c, in: bufio.NewReaderSize(c, 64<<10), req: []byte(req)}
}

// get returns the length of the body, which is thrown away.
func (r *rawClient) get(sink []byte) (int, error) {
	if _, err := r.c.Write(r.req); err != nil {
		return 0, err
	}
	length := -1
	for first := true; ; first = false {
		line, err := r.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if first && !bytes.Contains(line, []byte(" 200 ")) {
			return 0, fmt.Errorf("answer %q", line)
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return 0, err
			}
		}
		if len(line) == 2 {
			break
		}
	}
	left := length
	for left > 0 {
		if r.in.Buffered() > 0 {
			n, err := r.in.Discard(min(left, r.in.Buffered()))
			if err != nil {
				return 0, err
			}
			left -= n
			continue
		}
		n, err := r.drop(sink[:min(left, len(sink))])
		if err != nil {
			return 0, err
		}
		left -= n
	}
	return length, nil
}

// drop lets the kernel throw bytes away (tcp(7), MSG_TRUNC): what is measured is the server, not the copying of the client, which in
// the field is another machine.
func (r *rawClient) drop(sink []byte) (n int, err error) {
	raw, err := r.c.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), sink, syscall.MSG_TRUNC)
		return err != syscall.EAGAIN
	})
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, errors.Join(readErr, err)
}

func blobOf(b *testing.B, size int) []byte {
	b.Helper()
	data := make([]byte, size)
	_, err := rand.Read(data)
	require.NoError(b, err)
	return data
}

func BenchmarkManifestGet32Clients(b *testing.B) {
	const clients = 32
	peers(b, func(b *testing.B, addr string) {
		var layers [][]byte
		for i := range 51 {
			layers = append(layers, []byte(fmt.Sprint("layer ", i)))
		}
		pushTo(b, "http://"+addr, "bench/manifest", layers...)
		each := b.N/clients + 1
		times := make([][]time.Duration, clients)
		var wg sync.WaitGroup
		b.ResetTimer()
		for i := range clients {
			c := newRawClient(b, addr, "/v2/bench/manifest/manifests/v1")
			wg.Go(func() {
				sink := make([]byte, 32<<10)
				for range each {
					start := time.Now()
					if _, err := c.get(sink); err != nil {
						b.Error(err)
						return
					}
					times[i] = append(times[i], time.Since(start))
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		all := slices.Concat(times...)
		slices.Sort(all)
		b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "req/s")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	})
}

func BenchmarkBlobGet8Clients(b *testing.B) {
	const clients, size = 8, 64 << 20
	peers(b, func(b *testing.B, addr string) {
		data := blobOf(b, size)
		pushTo(b, "http://"+addr, "bench/blob", data)
		path := "/v2/bench/blob/blobs/" + digest.FromBytes(data).String()
		var wg sync.WaitGroup
		b.ResetTimer()
		for range clients {
			c := newRawClient(b, addr, path)
			wg.Go(func() {
				sink := make([]byte, 512<<10)
				for range b.N {
					if _, err := c.get(sink); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric(float64(b.N)*clients*size/(1<<30)/b.Elapsed().Seconds(), "GiB/s")
	})
}

// BenchmarkAppendPush is what the append engine does: 51 layers are mounted from the base's repository, a new one of 1 MiB is pushed.
func BenchmarkAppendPush(b *testing.B) {
	peers(b, func(b *testing.B, addr string) {
		base := "http://" + addr
		var layers [][]byte
		for range 51 {
			layers = append(layers, blobOf(b, 64<<10))
		}
		pushTo(b, base, "bench/base", layers...)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
		b.ResetTimer()
		for i := range b.N {
			repo := fmt.Sprint("bench/app", i)
			m := []string{}
			for _, l := range layers {
				d := digest.FromBytes(l)
				send(b, client, http.MethodPost, base+"/v2/"+repo+"/blobs/uploads/?from=bench/base&mount="+d.String(), nil, "")
				m = append(m, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"%s","size":%d}`, d, len(l)))
			}
			b.StopTimer()
			own := blobOf(b, 1<<20)
			b.StartTimer()
			for _, data := range [][]byte{[]byte("{}"), own} {
				loc := send(b, client, http.MethodPost, base+"/v2/"+repo+"/blobs/uploads/", nil, "")
				sep := "?"
				if strings.Contains(loc, "?") {
					sep = "&"
				}
				if strings.HasPrefix(loc, "/") {
					loc = base + loc
				}
				send(b, client, http.MethodPut, loc+sep+"digest="+digest.FromBytes(data).String(), data, "application/octet-stream")
			}
			m = append(m, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"%s","size":%d}`, digest.FromBytes(own), len(own)))
			body := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` +
				digest.FromString("{}").String() + `","size":2},"layers":[` + strings.Join(m, ",") + `]}`
			send(b, client, http.MethodPut, base+"/v2/"+repo+"/manifests/v1", []byte(body), "application/vnd.oci.image.manifest.v1+json")
		}
	})
}

func send(b *testing.B, client *http.Client, method, url string, body []byte, contentType string) string {
	b.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	require.NoError(b, err)
	req.SetBasicAuth("u", "p")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(req)
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
	require.NoError(b, resp.Body.Close())
	require.Less(b, resp.StatusCode, 300, "%s %s", method, url)
	return resp.Header.Get("Location")
}

func BenchmarkMonolithicPush64MiB(b *testing.B) {
	peers(b, func(b *testing.B, addr string) {
		base := "http://" + addr
		client := &http.Client{}
		b.SetBytes(64 << 20)
		data := blobOf(b, 64<<20)
		b.ResetTimer()
		for i := range b.N {
			b.StopTimer()
			copy(data, fmt.Sprint(i))
			d := digest.FromBytes(data)
			b.StartTimer()
			loc := send(b, client, http.MethodPost, base+"/v2/bench/push/blobs/uploads/", nil, "")
			sep := "?"
			if strings.Contains(loc, "?") {
				sep = "&"
			}
			if strings.HasPrefix(loc, "/") {
				loc = base + loc
			}
			send(b, client, http.MethodPut, loc+sep+"digest="+d.String(), data, "application/octet-stream")
		}
	})
}
