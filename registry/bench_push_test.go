package registry

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// upload pushes a blob in two requests, as podman, skopeo and buildah do for one that is small enough.
func upload(b *testing.B, c *rawClient, repo string, data []byte, d digest.Digest) {
	b.Helper()
	loc := c.send(b, http.MethodPost, "/v2/"+repo+"/blobs/uploads/", nil, "")
	if _, path, ok := strings.Cut(loc, "://"); ok { // distribution's is absolute
		loc = path[strings.Index(path, "/"):]
	}
	sep := "?"
	if strings.Contains(loc, "?") {
		sep = "&"
	}
	c.send(b, http.MethodPut, loc+sep+"digest="+d.String(), data, "application/octet-stream")
}

func layerJSON(d digest.Digest, size int) string {
	return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"%s","size":%d}`, d, size)
}

// kept are stores that stay until the process ends: on a disk without a journal making a file takes the longer the more
// files were deleted lately, so that one benchmark's end would be measured with the next.
var kept []string //nolint:gochecknoglobals // the process's

func keptRoot(b *testing.B) string {
	dir, err := os.MkdirTemp("", "dayone-bench-")
	require.NoError(b, err)
	kept = append(kept, dir)
	return dir
}

// RemoveKept is the end of the process.
func RemoveKept() {
	for _, dir := range kept {
		_ = os.RemoveAll(dir)
	}
}

// BenchmarkAppendPush is what the append engine does with a base of 51 layers: for the first image of a repository the
// layers are mounted from the base's ("mount"), for the next ones the repository is asked whether it has them ("head");
// then configuration, a new layer of 1 MiB and the manifest are pushed, one request after the other.
func BenchmarkAppendPush(b *testing.B) {
	appendPushes(b)
}

// BenchmarkAppendPushWithAJournal is the same on a fresh ext4 of usual options, as nodes have it: a disk without a
// journal passes over inodes that were deleted lately, which says more about the benchmarks before than about the
// server.
func BenchmarkAppendPushWithAJournal(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root to mount a file system")
	}
	image, dir := filepath.Join(b.TempDir(), "image"), b.TempDir()
	require.NoError(b, os.WriteFile(image, nil, 0o600))
	require.NoError(b, os.Truncate(image, 3<<30))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(b, err, "%s: %s", args[0], out)
	}
	b.Cleanup(func() { require.NoError(b, exec.Command("umount", dir).Run()) })
	b.Setenv("TMPDIR", dir)
	appendPushes(b)
}

func appendPushes(b *testing.B) {
	for _, transport := range []string{"tls", "plain"} {
		for _, kind := range []string{"mount", "head"} {
			b.Run(transport+"/"+kind, func(b *testing.B) {
				peersAt(b, keptRoot, transport == "tls", func(b *testing.B, p peer) { appendPush(b, p, kind == "mount") })
			})
		}
	}
}

func appendPush(b *testing.B, p peer, mount bool) {
	c := newRawClient(b, p, "")
	var base []digest.Digest
	for range 51 {
		data := blobOf(b, 64<<10)
		d := digest.FromBytes(data)
		upload(b, c, "bench/base", data, d)
		base = append(base, d)
	}
	config := []byte("{}")
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		own := blobOf(b, 1<<20)
		d := digest.FromBytes(own)
		repo := "bench/base"
		if mount {
			repo = fmt.Sprint("bench/app", i)
		}
		layers := []string{}
		for _, l := range base {
			layers = append(layers, layerJSON(l, 64<<10))
		}
		body := manifestJSON(config, append(layers, layerJSON(d, len(own))))
		b.StartTimer()
		for _, l := range base {
			if mount {
				c.send(b, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?from=bench/base&mount="+l.String(), nil, "")
			} else {
				c.send(b, http.MethodHead, "/v2/"+repo+"/blobs/"+l.String(), nil, "")
			}
		}
		upload(b, c, repo, config, digest.FromBytes(config))
		upload(b, c, repo, own, d)
		c.send(b, http.MethodPut, "/v2/"+repo+"/manifests/v1", []byte(body), "application/vnd.oci.image.manifest.v1+json")
	}
}

// BenchmarkMonolithicPush64MiB sends one blob in one request after another; the digests are known before.
func BenchmarkMonolithicPush64MiB(b *testing.B) {
	for _, transport := range []string{"tls", "plain"} {
		b.Run(transport, func(b *testing.B) {
			peers(b, transport == "tls", func(b *testing.B, p peer) {
				c := newRawClient(b, p, "")
				b.SetBytes(64 << 20)
				data := blobOf(b, 64<<20)
				b.ResetTimer()
				for i := range b.N {
					b.StopTimer()
					copy(data, fmt.Sprint(i))
					d := digest.FromBytes(data)
					b.StartTimer()
					upload(b, c, "bench/push", data, d)
				}
				b.ReportMetric(float64(b.N)*64/b.Elapsed().Seconds(), "MiB/s")
			})
		})
	}
}
