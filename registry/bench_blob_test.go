package registry

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/certs"
)

// peer is a server under measurement.
type peer struct {
	addr   string
	config *tls.Config // of its clients, nil for plain HTTP
}

// peers are measured side by side on the same disk over the same transport: our server with accounts, and
// distribution's own handlers with neither accounts nor a log.
func peers(b *testing.B, secure bool, f func(b *testing.B, p peer)) {
	b.Helper()
	peersAt(b, (*testing.B).TempDir, secure, f)
}

// peersAt are peers whose stores are where root says.
func peersAt(b *testing.B, root func(*testing.B) string, secure bool, f func(b *testing.B, p peer)) {
	server, client := benchTLS(b, secure)
	b.Run("dayone", func(b *testing.B) {
		o := Options{Root: root(b), Listen: "127.0.0.1:0", InsecureHTTP: !secure,
			Users: []User{{Name: "u", Password: "p", Role: RolePush}}}
		if secure {
			o.Certificate = &server.Certificates[0]
		}
		s, err := New(o)
		require.NoError(b, err)
		require.NoError(b, s.Start())
		b.Cleanup(func() { require.NoError(b, s.Shutdown(context.Background())) })
		f(b, peer{s.Addr(), client})
	})
	b.Run("distribution", func(b *testing.B) {
		f(b, peer{serveBench(b, newDistribution(b, root(b)), server), client})
	})
}

// benchTLS is what both servers and all clients speak, nil without TLS.
func benchTLS(b *testing.B, secure bool) (server, client *tls.Config) {
	b.Helper()
	if !secure {
		return nil, nil
	}
	ca, err := certs.NewCA(certs.CAOptions{})
	require.NoError(b, err)
	pair, err := ca.ServerCertificate([]string{"127.0.0.1"}, certs.ServerOptions{})
	require.NoError(b, err)
	server = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}}
	return server, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

func listenBench(b *testing.B, config *tls.Config) net.Listener {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = ln.Close() })
	if config != nil {
		return tls.NewListener(ln, config)
	}
	return ln
}

func serveBench(b *testing.B, h http.Handler, config *tls.Config) string {
	ln := listenBench(b, config)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(ln) }() // it ends with the listener
	b.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

// nullServer answers every request with size bytes from memory and does nothing else: what this machine's loopback and
// cipher allow.
func nullServer(b *testing.B, size int, config *tls.Config) string {
	ln := listenBench(b, config)
	piece := make([]byte, min(size, pieceBuffer))
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				for {
					if line, err := in.ReadSlice('\n'); err != nil {
						return
					} else if len(line) != 2 {
						continue
					}
					_, err := c.Write(append(bytes.Clone(answer), piece...))
					for left := size - len(piece); left > 0 && err == nil; left -= len(piece) {
						_, err = c.Write(piece[:min(left, len(piece))])
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

func getBlobs(b *testing.B, p peer, path string, size int) {
	const clients = 8
	var list []*rawClient
	for range clients {
		c := newRawClient(b, p, path)
		c.settle(b)
		list = append(list, c)
	}
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, c := range list {
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
	b.ReportMetric(float64(b.N)*clients*float64(size)/(1<<30)/b.Elapsed().Seconds(), "GiB/s")
	b.ReportMetric(float64(b.N)*clients/b.Elapsed().Seconds(), "req/s")
}

// BenchmarkBlobGet pulls blobs of the sizes of a configuration, of a layer with files of the operating system's
// configuration, and of a large layer, with 8 clients that drop what they get.
func BenchmarkBlobGet(b *testing.B) {
	for _, transport := range []string{"tls", "plain"} {
		for _, size := range []int{4 << 10, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", transport, size>>10), func(b *testing.B) {
				secure := transport == "tls"
				peers(b, secure, func(b *testing.B, p peer) {
					data := blobOf(b, size)
					d := digest.FromBytes(data)
					upload(b, newRawClient(b, p, ""), "bench/blob", data, d)
					getBlobs(b, p, "/v2/bench/blob/blobs/"+d.String(), size)
				})
				b.Run("null", func(b *testing.B) {
					server, client := benchTLS(b, secure)
					getBlobs(b, peer{nullServer(b, size, server), client}, "/", size)
				})
			})
		}
	}
}
