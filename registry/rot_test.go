package registry_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/storage"
)

// disk is an ext4 in a file, so that a test can change bytes below the file system: the files' sizes and times stay.
type disk struct{ image, dir string }

func newDisk(t *testing.T) disk {
	t.Helper()
	d := disk{filepath.Join(t.TempDir(), "disk"), t.TempDir()}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 64<<20))
	out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput()
	require.NoError(t, err, "%s", out)
	d.mount(t)
	return d
}

func (d disk) mount(t *testing.T) {
	t.Helper()
	out, err := exec.Command("mount", "-o", "loop", d.image, d.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
}

// rot changes bytes in the middle of some that the disk has once.
func (d disk) rot(t *testing.T, data []byte) {
	t.Helper()
	unix.Sync()
	all, err := os.ReadFile(d.image)
	require.NoError(t, err)
	at := bytes.Index(all, data)
	require.Positive(t, at, "the disk has the bytes in one piece")
	f, err := os.OpenFile(d.image, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("rot"), int64(at+len(data)/2))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func rottable(text string) []byte { return []byte(strings.Repeat(text, 4096/len(text)+1)[:4096]) }

// TestRotWhileStopped: a blob whose file looks as it did, but has other bytes, is not there for HEAD and GET alike.
func TestRotWhileStopped(t *testing.T) {
	d := newDisk(t)
	r := registrytest.Start(t, func(o *registry.Options) { o.Root, o.MinFreeBytes = filepath.Join(d.dir, "root"), 1 })
	data := rottable("rots while the server is stopped ")
	blob := pushBlob(t, r, "a/b", data)
	require.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+blob.String(), nil).status)
	r.Stop(t)
	require.NoError(t, unix.Unmount(d.dir, 0))
	d.rot(t, data)
	d.mount(t)
	r.Restart(t)
	defer r.Stop(t)
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		assert.Equal(t, http.StatusNotFound, request(t, r, r.Push, method, "/v2/a/b/blobs/"+blob.String(), nil).status)
	}
	pushBlob(t, r, "a/b", data)
	assert.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+blob.String(), nil).status)
}

// TestScrubFindsRot reads the disk and not the memory, while the server runs.
func TestScrubFindsRot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every time.Duration
	}{{"by command", -1}, {"by schedule", time.Millisecond}} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk(t)
			root := filepath.Join(d.dir, "root")
			r := registrytest.Start(t, func(o *registry.Options) { o.Root, o.ScrubEvery, o.MinFreeBytes = root, tc.every, 1 })
			defer r.Stop(t)
			data := rottable("rots while the server runs " + tc.name)
			blob := pushBlob(t, r, "a/b", data)
			kept := pushBlob(t, r, "a/b", rottable("stays"))
			d.rot(t, data)
			if tc.every < 0 {
				opened, err := registry.OpenRoot(t.Context(), root, nil)
				require.NoError(t, err)
				found, err := opened.Verify(t.Context())
				require.NoError(t, err)
				require.NoError(t, opened.Close())
				assert.Equal(t, []digest.Digest{blob}, found.Corrupt)
			}
			path := "/v2/a/b/blobs/" + blob.String()
			require.Eventually(t, func() bool {
				return request(t, r, r.Pull, http.MethodGet, path, nil).status == http.StatusNotFound
			}, time.Minute, time.Millisecond)
			assert.Equal(t, http.StatusOK,
				request(t, r, r.Pull, http.MethodGet, "/v2/a/b/blobs/"+kept.String(), nil).status)
			status, err := registry.ReadStatus(t.Context(), root)
			require.NoError(t, err)
			require.NotNil(t, status.LastScrub)
			metrics := string(request(t, r, r.Pull, http.MethodGet, "/metrics", nil).body)
			assert.Contains(t, metrics, "dayone_registry_blobs_corrupt_total 1")
			assert.NotContains(t, metrics, "dayone_registry_scrubs_total 0")
		})
	}
}

// TestScrubGoesOn restarts the server in the middle of a scrub: it does not read again what it had read.
func TestScrubGoesOn(t *testing.T) {
	r := registrytest.Start(t, func(o *registry.Options) { o.ScrubEvery = -1 })
	root := r.Options.Root
	const blobs, size = 8, 1 << 20
	for i := range blobs {
		pushBlob(t, r, "a/b", bytes.Repeat([]byte{byte(i)}, size))
	}
	r.Stop(t)
	r.Options.ScrubEvery, r.Options.ScrubRate = time.Hour, size
	r.Restart(t)
	scrubbed := func() (read int64, last *registry.Scrub) {
		s, err := registry.ReadStatus(t.Context(), root)
		require.NoError(t, err)
		if s.Scrub != nil {
			read = s.Scrub.ReadBytes
		}
		return read, s.LastScrub
	}
	require.Eventually(t, func() bool { read, _ := scrubbed(); return read > 2*size }, time.Minute, time.Millisecond)
	r.Stop(t)
	require.FileExists(t, filepath.Join(root, ".dayone-registry.scrubbing"))
	r.Options.ScrubRate = 1
	r.Restart(t)
	read, last := scrubbed()
	require.Nil(t, last)
	assert.GreaterOrEqual(t, read, int64(2*size))
	r.Stop(t)
	r.Options.ScrubRate = 1 << 30
	r.Restart(t)
	require.Eventually(t, func() bool { _, last = scrubbed(); return last != nil }, time.Minute, time.Millisecond)
	assert.Equal(t, blobs, last.Blobs)
	assert.Equal(t, int64(blobs*size), last.Bytes)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(root, ".dayone-registry.scrubbing"))
		return os.IsNotExist(err)
	}, time.Minute, time.Millisecond)
}

func TestStatus(t *testing.T) {
	r := registrytest.Start(t, func(o *registry.Options) { o.MaxBytes, o.ScrubEvery = 1<<20, -1 })
	root := r.Options.Root
	pushBlob(t, r, "a/b", []byte("loose"))
	a := request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil)
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, http.StatusAccepted,
		request(t, r, r.Push, http.MethodPatch, a.header.Get("Location"), strings.NewReader("1234")).status)
	s, err := registry.ReadStatus(t.Context(), root)
	require.NoError(t, err)
	assert.Equal(t, 1, s.Uploads)
	assert.Equal(t, int64(9), s.StoredBytes)
	assert.Zero(t, s.ReservedBytes, "nobody writes")
	assert.Equal(t, int64(1<<20), s.MaxBytes)
	assert.Positive(t, s.FreeBytes)
	assert.Nil(t, s.LastCollection)
	assert.Nil(t, s.LastScrub)

	opened, err := registry.OpenRoot(t.Context(), root, nil)
	require.NoError(t, err)
	_, err = opened.Verify(t.Context())
	require.NoError(t, err)
	_, err = opened.Collect(t.Context(), storage.CollectOptions{Grace: -1})
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	r.Restart(t)
	s, err = registry.ReadStatus(t.Context(), root)
	require.NoError(t, err)
	assert.Nil(t, s.LastCollection, "that of this process")
	require.NotNil(t, s.LastScrub, "kept over restarts")
	assert.Equal(t, 1, s.LastScrub.Blobs)
	assert.Contains(t, string(request(t, r, r.Pull, http.MethodGet, "/metrics", nil).body),
		"dayone_registry_reserved_bytes 0")
	r.Stop(t)
	_, err = registry.ReadStatus(t.Context(), root)
	assert.ErrorContains(t, err, "no server answers there")
}

// TestReadOnlyRoot serves a root on a file system that cannot be written to, from two servers at once.
func TestReadOnlyRoot(t *testing.T) {
	r := registrytest.Start(t)
	image := pushImage(t, r, "a/b", "v1", "layer")
	referrer := pushReferrer(t, r, "a/b", image, "t", "1")
	bad := pushBlob(t, r, "a/b", []byte("bad"))
	r.Stop(t)
	root := r.Options.Root
	require.NoError(t, os.WriteFile(filepath.Join(root, "docker/registry/v2/blobs/sha256", bad.Encoded()[:2],
		bad.Encoded(), "data"), []byte("BAD"), 0o600))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "docker/registry/v2/.dayone-referrers")))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "docker/registry/v2/repositories/a/b/_referrers")))
	dir := t.TempDir()
	require.NoError(t, unix.Mount(root, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	for range 2 {
		r := registrytest.Start(t, func(o *registry.Options) {
			o.Root, o.ReadOnly, o.ScrubEvery = dir, true, time.Millisecond
		})
		for _, path := range []string{"/v2/_catalog", "/v2/a/b/tags/list", "/v2/a/b/manifests/v1",
			"/v2/a/b/blobs/" + digest.FromString("layer").String(), "/readyz"} {
			assert.Equal(t, http.StatusOK, request(t, r, r.Pull, http.MethodGet, path, nil).status, path)
		}
		found, _, _ := referrersPages(t, r, "/v2/a/b/referrers/"+image.String())
		assert.Equal(t, []digest.Digest{referrer}, found)
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			assert.Equal(t, http.StatusNotFound, request(t, r, r.Push, method, "/v2/a/b/blobs/"+bad.String(), nil).status)
		}
		assert.Equal(t, http.StatusMethodNotAllowed,
			request(t, r, r.Push, http.MethodPost, "/v2/a/b/blobs/uploads/", nil).status)
	}
	empty, err := registry.New(registry.Options{Root: t.TempDir(), Listen: "127.0.0.1:0", ReadOnly: true,
		Users: []registry.User{r.Push}})
	require.NoError(t, err)
	assert.ErrorContains(t, empty.Start(), "it is not the root of a registry")
}
