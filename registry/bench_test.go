package registry

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func blobOf(b *testing.B, size int) []byte {
	b.Helper()
	data := make([]byte, size)
	_, err := rand.Read(data)
	require.NoError(b, err)
	return data
}

// pushImage pushes layers with a configuration and tags them v1.
func pushImage(b *testing.B, p peer, repo string, layers ...[]byte) {
	b.Helper()
	c := newRawClient(b, p, "")
	config := []byte("{}")
	upload(b, c, repo, config, digest.FromBytes(config))
	var list []string
	for _, l := range layers {
		d := digest.FromBytes(l)
		upload(b, c, repo, l, d)
		list = append(list, layerJSON(d, len(l)))
	}
	c.send(b, http.MethodPut, "/v2/"+repo+"/manifests/v1", []byte(manifestJSON(config, list)),
		"application/vnd.oci.image.manifest.v1+json")
}

func manifestJSON(config []byte, layers []string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":`+
		`{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"%s","size":%d},"layers":[%s]}`,
		digest.FromBytes(config), len(config), strings.Join(layers, ","))
}

func BenchmarkManifestGet32Clients(b *testing.B) {
	for _, transport := range []string{"tls", "plain"} {
		b.Run(transport, func(b *testing.B) { peers(b, transport == "tls", getManifests) })
	}
}

func getManifests(b *testing.B, p peer) {
	const clients = 32
	var layers [][]byte
	for i := range 51 {
		layers = append(layers, []byte(fmt.Sprint("layer ", i)))
	}
	pushImage(b, p, "bench/manifest", layers...)
	var list []*rawClient
	for range clients {
		c := newRawClient(b, p, "/v2/bench/manifest/manifests/v1")
		c.settle(b)
		list = append(list, c)
	}
	each := b.N/clients + 1
	times := make([][]time.Duration, clients)
	var wg sync.WaitGroup
	b.ResetTimer()
	for i, c := range list {
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
}
