package transfer_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

func reference(t testing.TB, s string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(s)
	require.NoError(t, err)
	return ref
}

// image makes an image for amd64 with a label.
func image(t testing.TB, layers int64) v1.Image {
	t.Helper()
	img, err := random.Image(64<<10, layers)
	require.NoError(t, err)
	cfg, err := img.ConfigFile()
	require.NoError(t, err)
	cfg = cfg.DeepCopy()
	cfg.Config.Labels = map[string]string{"containers.bootc": "1"}
	cfg.OS, cfg.Architecture = "linux", "amd64"
	img, err = mutate.ConfigFile(img, cfg)
	require.NoError(t, err)
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

func digestOf(t testing.TB, x interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	h, err := x.Digest()
	require.NoError(t, err)
	return h.String()
}

func pull(r *registrytest.Registry, repo string) transfer.Endpoint {
	return transfer.Endpoint{Reference: "docker://" + r.Addr + "/" + repo, CAFile: r.CAFile, AuthFile: r.PullAuthFile}
}

func push(r *registrytest.Registry, repo string) transfer.Endpoint {
	return transfer.Endpoint{Reference: r.Addr + "/" + repo, CAFile: r.CAFile, Username: r.Push.Name,
		Password: r.Push.Password}
}

func TestCopyKeepsDigest(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	img := image(t, 3)
	want := digestOf(t, img)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), img, src.Pusher(t)...))
	layout := "oci:" + filepath.Join(t.TempDir(), "layout") + ":v1"
	for _, step := range []struct {
		name     string
		from, to transfer.Endpoint
	}{
		{"registry to registry by tag", pull(src, "os/base:v1"), push(dst, "a/base:v1")},
		{"registry to registry by digest", pull(src, "os/base@"+want), push(dst, "b/base@"+want)},
		{"registry to layout", pull(src, "os/base@"+want), transfer.Endpoint{Reference: layout}},
		{"layout to registry", transfer.Endpoint{Reference: layout}, push(dst, "c/base:v1")},
		{"a tag beside the digest", pull(src, "os/base:v1@"+want), push(dst, "d/base:v1")},
	} {
		t.Run(step.name, func(t *testing.T) {
			res, err := transfer.Copy(t.Context(), step.from, step.to, transfer.Options{})
			require.NoError(t, err)
			assert.Equal(t, want, res.Digest.String())
			assert.Equal(t, string(types.OCIManifestSchema1), res.MediaType)
			assert.Equal(t, 4, res.BlobsCopied+res.BlobsSkipped)
			got, err := transfer.Inspect(t.Context(), step.to, "")
			require.NoError(t, err)
			assert.Equal(t, want, got.Digest.String())
			assert.Equal(t, "1", got.Labels["containers.bootc"])
			assert.Equal(t, "linux/amd64", got.OS+"/"+got.Architecture)
			assert.Len(t, got.Layers, 3)
		})
	}
}

func TestCopyTwice(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), image(t, 4), src.Pusher(t)...))
	var reports atomic.Int32
	first, err := transfer.Copy(t.Context(), pull(src, "os/base:v1"), push(dst, "os/base:v1"),
		transfer.Options{OnProgress: func(p transfer.Progress) {
			if p.Finished {
				reports.Add(1)
			}
		}})
	require.NoError(t, err)
	assert.Equal(t, 5, first.BlobsCopied)
	assert.Equal(t, int32(5), reports.Load())
	assert.Greater(t, first.Bytes, int64(4*64<<10))
	second, err := transfer.Copy(t.Context(), pull(src, "os/base:v1"), push(dst, "os/base:v1"), transfer.Options{})
	require.NoError(t, err)
	assert.Zero(t, second.BlobsCopied)
	assert.Zero(t, second.Bytes)
	assert.Equal(t, first.Digest, second.Digest)
}

// A destination that has the manifest and lost a blob gets the blob again.
func TestCopyRestoresLostBlob(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	img := image(t, 2)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), img, src.Pusher(t)...))
	_, err := transfer.Copy(t.Context(), pull(src, "os/base:v1"), push(dst, "os/base:v1"), transfer.Options{})
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	lost, err := layers[1].Digest()
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dst.Options.Root, "docker/registry/v2/blobs/sha256", lost.Hex[:2], lost.Hex,
		"data")))
	dst.Restart(t)
	res, err := transfer.Copy(t.Context(), pull(src, "os/base:v1"), push(dst, "os/base:v1"), transfer.Options{})
	require.NoError(t, err)
	assert.Equal(t, 1, res.BlobsCopied)
	back, err := remote.Layer(reference(t, dst.Addr+"/os/base:v1").Context().Digest(lost.String()), dst.Pusher(t)...)
	require.NoError(t, err)
	content, err := back.Compressed()
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, content)
	require.NoError(t, err)
}

func TestCopyIndex(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	amd, arm := image(t, 1), image(t, 2)
	add := func(i v1.Image, arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux",
			Architecture: arch}}}
	}
	idx := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), add(amd, "amd64"),
		add(arm, "arm64"))
	require.NoError(t, remote.WriteIndex(reference(t, src.Addr+"/os/multi:v1"), idx, src.Pusher(t)...))

	whole, err := transfer.Copy(t.Context(), pull(src, "os/multi:v1"), push(dst, "os/multi:v1"), transfer.Options{})
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, idx), whole.Digest.String())
	one, err := transfer.Copy(t.Context(), pull(src, "os/multi:v1"), push(dst, "os/one:v1"),
		transfer.Options{Platform: "linux/arm64"})
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, arm), one.Digest.String())
	got, err := transfer.Inspect(t.Context(), pull(dst, "os/multi:v1"), "linux/arm64")
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, arm), got.Digest.String())
	_, err = transfer.Copy(t.Context(), pull(src, "os/multi:v1"), push(dst, "os/none:v1"),
		transfer.Options{Platform: "linux/s390x"})
	require.Error(t, err)
}

func TestCopyDockerArchive(t *testing.T) {
	dst := registrytest.Start(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, tarball.WriteToFile(file, reference(t, "example.com/os/base:v1"), image(t, 2)))
	first, err := transfer.Copy(t.Context(), transfer.Endpoint{Reference: "docker-archive:" + file},
		push(dst, "os/base:v1"), transfer.Options{})
	require.NoError(t, err)
	second, err := transfer.Copy(t.Context(), transfer.Endpoint{Reference: "docker-archive:" + file},
		push(dst, "os/again:v1"), transfer.Options{})
	require.NoError(t, err)
	assert.Equal(t, first.Digest, second.Digest, "the same archive always gives the same digest")
	_, err = transfer.Copy(t.Context(), pull(dst, "os/base:v1"), transfer.Endpoint{Reference: "docker-archive:" + file +
		".2"}, transfer.Options{})
	require.ErrorContains(t, err, "use oci:DIRECTORY")
}

// spoiled gives a registry's image through a proxy of faults.
func spoiled(t *testing.T, r *registrytest.Registry, repo string) (*faultproxy.Proxy, transfer.Endpoint) {
	t.Helper()
	proxy, err := faultproxy.To(r.URL(), r.Transport(t))
	require.NoError(t, err)
	srv := httptest.NewServer(proxy)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return proxy, transfer.Endpoint{Reference: strings.TrimPrefix(srv.URL, "http://") + "/" + repo, Insecure: true,
		Username: r.Pull.Name, Password: r.Pull.Password}
}

func TestCopyRetries(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), image(t, 2), src.Pusher(t)...))
	for _, tc := range []struct {
		name    string
		fail    faultproxy.Fault
		retried bool
		times   int32
	}{ // net/http itself repeats a GET whose kept connection was cut
		{"503", faultproxy.Status(http.StatusServiceUnavailable), true, 2},
		{"502", faultproxy.Status(http.StatusBadGateway), true, 2},
		{"connection cut", faultproxy.Cut, true, 4},
		{"404", faultproxy.Status(http.StatusNotFound), false, 2},
		{"403", faultproxy.Status(http.StatusForbidden), false, 2},
		{"507", faultproxy.Status(http.StatusInsufficientStorage), false, 2},
		{"other bytes", faultproxy.Text("not the blob"), false, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// the first is a look at the configuration, whose failure containers/image forgives
			proxy, from := spoiled(t, src, "os/base:v1")
			proxy.Spoil(faultproxy.On("/blobs/", faultproxy.First(tc.times, tc.fail)))
			to := push(dst, "os/"+strings.ReplaceAll(strings.ToLower(tc.name), " ", "-")+":v1")
			res, err := transfer.Copy(t.Context(), from, to, transfer.Options{Backoff: time.Millisecond, Parallel: 1})
			if tc.retried {
				require.NoError(t, err)
				assert.Equal(t, 2, res.Attempts)
				return
			}
			require.Error(t, err)
			assert.Equal(t, 1, res.Attempts)
		})
	}
}

// A registry that lies or never stops gives an error and no image: what arrives is what the digest names, or nothing.
func TestCopyFromALyingRegistry(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	img := image(t, 2)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), img, src.Pusher(t)...))
	proxy, from := spoiled(t, src, "os/base@"+digestOf(t, img))
	flipped := proxy.Changed(func(body []byte) []byte { body[len(body)/2] ^= 4; return body })
	cases := []struct {
		name  string
		fault faultproxy.Fault
	}{
		{"a changed manifest", faultproxy.On("/manifests/", flipped)},
		{"changed blobs", faultproxy.On("/blobs/", flipped)},
		{"half a manifest", faultproxy.On("/manifests/", proxy.Dying(500))},
		{"half of each blob", faultproxy.On("/blobs/", proxy.Dying(500))},
		{"a manifest without an end", faultproxy.On("/manifests/", faultproxy.Endless)},
		{"blobs without an end", faultproxy.On("/blobs/", faultproxy.Endless)},
		{"circles", faultproxy.On("/blobs/", faultproxy.Elsewhere)},
		{"a captive portal", faultproxy.Text("<html>log in</html>")},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			proxy.Spoil(c.fault)
			to := push(dst, fmt.Sprintf("os/lie-%d:v1", i))
			_, err := transfer.Copy(t.Context(), from, to, transfer.Options{Attempts: 1})
			require.Error(t, err)
			_, err = transfer.Inspect(t.Context(), to, "")
			require.Error(t, err, "there is an image")
		})
	}
	proxy.Spoil(proxy.Slow(3, time.Millisecond)) // slow is no fault
	res, err := transfer.Copy(t.Context(), from, push(dst, "os/slow:v1"), transfer.Options{Attempts: 1})
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, img), res.Digest.String())
}

func TestCopyGivesUp(t *testing.T) {
	src := registrytest.Start(t)
	from := pull(src, "os/base:v1")
	src.Stop(t)
	res, err := transfer.Copy(t.Context(), from, transfer.Endpoint{Reference: "oci:" + filepath.Join(t.TempDir(), "l")},
		transfer.Options{Attempts: 3, Backoff: time.Millisecond})
	require.Error(t, err)
	assert.Equal(t, 3, res.Attempts)
}

func TestCopyRefused(t *testing.T) {
	src, other := registrytest.Start(t), registrytest.Start(t)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), image(t, 1), src.Pusher(t)...))
	for _, tc := range []struct {
		name, want string
		change     func(from, to *transfer.Endpoint)
	}{
		{"wrong password", "check the account", func(e, _ *transfer.Endpoint) {
			e.AuthFile, e.Username, e.Password = "",
				"pull", "canary-password"
		}},
		{"anonymous", "check the account", func(e, _ *transfer.Endpoint) { e.AuthFile = "" }},
		{"CA of another registry", "give the CA", func(e, _ *transfer.Endpoint) { e.CAFile = other.CAFile }},
		{"no CA", "give the CA", func(e, _ *transfer.Endpoint) { e.CAFile = "" }},
		{"a pull account at the destination", "use one that may push", func(_, e *transfer.Endpoint) {
			*e = transfer.Endpoint{Reference: other.Addr + "/os/base:v1", CAFile: other.CAFile, AuthFile: other.PullAuthFile}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := pull(src, "os/base:v1"), transfer.Endpoint{Reference: "oci:" + filepath.Join(t.TempDir(), "l")}
			tc.change(&from, &to)
			res, err := transfer.Copy(t.Context(), from, to, transfer.Options{Backoff: time.Millisecond})
			require.ErrorContains(t, err, tc.want)
			assert.Equal(t, 1, res.Attempts)
			assert.NotContains(t, err.Error(), "canary-password")
		})
	}
}

func TestCopyBadOptions(t *testing.T) {
	tmp := t.TempDir()
	for _, tc := range []struct{ name, ca, platform, want string }{
		{name: "no CA", ca: "/nowhere", want: "read CA of oci:o"},
		{name: "platform", platform: "arm", want: `parse platform "arm"`},
	} {
		_, err := transfer.Copy(t.Context(), transfer.Endpoint{Reference: "oci:i"}, transfer.Endpoint{Reference: "oci:o",
			CAFile: tc.ca}, transfer.Options{TempDir: tmp, Platform: tc.platform})
		require.ErrorContains(t, err, tc.want, tc.name)
	}
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestBadReferences(t *testing.T) {
	for _, ref := range []string{"", "ubuntu", "docker://ubuntu", "foo:bar", "docker://example.com/UPPER",
		"containers-storage:x", "oci:", "docker-archive:"} {
		_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: ref}, "")
		assert.Error(t, err, "%q", ref)
	}
	for image, missing := range map[string]string{"busybox": "the registry is missing",
		"registry.example.com": "the repository is missing"} {
		_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: image}, "")
		require.ErrorContains(t, err, missing, image)
	}
}

func TestTempDirIsEmptied(t *testing.T) {
	tmp := t.TempDir()
	src := registrytest.Start(t, func(*registry.Options) {})
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), image(t, 1), src.Pusher(t)...))
	_, err := transfer.Copy(t.Context(), pull(src, "os/base:v1"), transfer.Endpoint{Reference: "oci:" +
		filepath.Join(t.TempDir(), "l")}, transfer.Options{TempDir: tmp})
	require.NoError(t, err)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestCopyMounts(t *testing.T) {
	r := registrytest.Start(t)
	img := image(t, 3)
	require.NoError(t, remote.Write(reference(t, r.Addr+"/os/base:v1"), img, r.Pusher(t)...))
	res, err := transfer.Copy(t.Context(), pull(r, "os/base:v1"), push(r, "os/mounted:v1"), transfer.Options{})
	require.NoError(t, err)
	assert.Equal(t, digestOf(t, img), res.Digest.String())
	assert.LessOrEqual(t, res.BlobsCopied, 1, "the configuration may be sent, layers are not")
	assert.Less(t, res.Bytes, int64(64<<10))
}

func TestCopyResumes(t *testing.T) {
	src, dst := registrytest.Start(t), registrytest.Start(t)
	img := image(t, 4)
	require.NoError(t, remote.Write(reference(t, src.Addr+"/os/base:v1"), img, src.Pusher(t)...))
	proxy, from := spoiled(t, src, "os/base:v1")
	// the configuration and two layers come through
	proxy.Spoil(faultproxy.On("/blobs/", faultproxy.After(3, faultproxy.Status(http.StatusServiceUnavailable))))
	_, err := transfer.Copy(t.Context(), from, push(dst, "os/base:v1"), transfer.Options{Attempts: 1, Parallel: 1})
	require.Error(t, err)
	res, err := transfer.Copy(t.Context(), pull(src, "os/base:v1"), push(dst, "os/base:v1"), transfer.Options{})
	require.NoError(t, err)
	assert.Equal(t, 2, res.BlobsSkipped, "two layers had come over")
	assert.Equal(t, 3, res.BlobsCopied)
	assert.Equal(t, digestOf(t, img), res.Digest.String())
}
