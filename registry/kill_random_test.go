package registry_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/storage"
)

// killsEnv is how often TestKillAtRandomMoments kills, killSeedEnv the seed of another run.
const (
	killsEnv    = "DAYONE_TEST_KILLS"
	killSeedEnv = "DAYONE_TEST_KILL_SEED"
)

// pushed is an image with a referrer and how far its client came.
type pushed struct {
	layer, manifest, referrer []byte
	stored, signed            bool // answered with 201
	deleting, deleted         bool // asked for, answered with 202
}

// TestKillAtRandomMoments kills a server among pushes, deletions and collections: what was answered is there, and what
// was not is there whole or not at all.
func TestKillAtRandomMoments(t *testing.T) {
	kills, seed := 4, uint64(22)
	if v := os.Getenv(killsEnv); v != "" {
		var err error
		kills, err = strconv.Atoi(v)
		require.NoError(t, err)
		seed = uint64(time.Now().UnixNano())
	}
	if v := os.Getenv(killSeedEnv); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%d kills, seed %d", kills, seed)
	random := rand.New(rand.NewPCG(seed, seed))
	u, err := registry.NewUser("push", registry.RolePush)
	require.NoError(t, err)
	root := t.TempDir()
	var images []*pushed
	look := func(r *registrytest.Registry, first, kill int) {
		for i, p := range images[first:] {
			p.check(t, r, first+i)
		}
		if t.Failed() {
			t.Fatalf("after kill %d of seed %d", kill, seed)
		}
	}
	latest := 0
	for kill := range kills {
		cmd, r := child(t, root, u)
		look(r, latest, kill)
		latest = len(images)
		after := time.Duration(random.IntN(250)) * time.Millisecond
		time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		images = append(images, untilKilled(t, r, root, len(images), random.Uint64())...)
		_ = cmd.Wait() // it was killed, that is its error
	}
	_, r := child(t, root, u)
	look(r, 0, kills)
	opened, err := registry.OpenRoot(t.Context(), root, nil)
	require.NoError(t, err)
	found, err := opened.Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	assert.Empty(t, found.Corrupt)
	assert.Empty(t, found.Missing)
	assert.Empty(t, found.Damaged)
}

// try makes one request and returns its status, 0 when the server is gone.
func try(t *testing.T, r *registrytest.Registry, method, path string, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.URL()+path, bytes.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth(r.Push.Name, r.Push.Password)
	if method == http.MethodPut {
		req.Header.Set("Content-Type", ociManifest)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body) // the status says enough
	return resp.StatusCode
}

// untilKilled lets two clients push and delete and one collect until the server is gone.
func untilKilled(t *testing.T, r *registrytest.Registry, root string, first int, seed uint64) []*pushed {
	t.Helper()
	var mu sync.Mutex
	var images []*pushed
	var clients sync.WaitGroup
	next := func() (*pushed, int) {
		mu.Lock()
		defer mu.Unlock()
		n := first + len(images)
		p := &pushed{layer: bytes.Repeat([]byte(fmt.Sprintf("%08d", n)), 1000)}
		p.manifest = manifestOf(digest.FromString("{}"), 2, p.layer)
		p.referrer = bytes.Replace(manifestOf(digest.FromString("{}"), 2), []byte(`]}`), []byte(
			`],"subject":{"mediaType":"`+ociManifest+`","digest":"`+digest.FromBytes(p.manifest).String()+`","size":`+
				itoa(len(p.manifest))+`}}`), 1)
		images = append(images, p)
		return p, n
	}
	for c := range 2 {
		random := rand.New(rand.NewPCG(seed, uint64(c)))
		clients.Go(func() {
			for {
				p, n := next()
				if !p.live(t, r, n, random.IntN(3) == 0) {
					return
				}
			}
		})
	}
	clients.Go(func() {
		for {
			opened, err := registry.OpenRoot(t.Context(), root, nil)
			if err != nil {
				return
			}
			_, err = opened.Collect(t.Context(), storage.CollectOptions{Grace: -1})
			_ = opened.Close() // the server may be gone
			if err != nil || try(t, r, http.MethodGet, "/healthz", nil) == 0 {
				return
			}
		}
	})
	clients.Wait()
	return images
}

// live pushes an image and its referrer, and perhaps deletes it. It reports whether the server is still there. Without
// a grace a collection takes what no manifest names yet, and the manifest is refused.
func (p *pushed) live(t *testing.T, r *registrytest.Registry, n int, thenDelete bool) bool {
	t.Helper()
	d := digest.FromBytes(p.manifest).String()
	for _, blob := range [][]byte{[]byte("{}"), p.layer} {
		if try(t, r, http.MethodPost, "/v2/k/i/blobs/uploads/?digest="+digest.FromBytes(blob).String(), blob) == 0 {
			return false
		}
	}
	switch try(t, r, http.MethodPut, fmt.Sprintf("/v2/k/i/manifests/v%d", n), p.manifest) {
	case 0:
		return false
	case http.StatusCreated:
		p.stored = true
	case http.StatusBadRequest:
		return true
	default:
		t.Errorf("image %d was refused", n)
	}
	switch try(t, r, http.MethodPut, "/v2/k/i/manifests/"+digest.FromBytes(p.referrer).String(), p.referrer) {
	case 0:
		return false
	case http.StatusBadRequest:
	case http.StatusCreated:
		p.signed = true
	default:
		t.Errorf("referrer of image %d was refused", n)
	}
	if thenDelete {
		p.deleting = true
		status := try(t, r, http.MethodDelete, "/v2/k/i/manifests/"+d, nil)
		p.deleted = status == http.StatusAccepted
		return status != 0
	}
	return true
}

// check looks whether what was answered is so, and nothing is half.
func (p *pushed) check(t *testing.T, r *registrytest.Registry, n int) {
	t.Helper()
	get := func(path string) answer { return request(t, r, r.Push, http.MethodGet, "/v2/k/i/"+path, nil) }
	d, referrer := digest.FromBytes(p.manifest), digest.FromBytes(p.referrer)
	m := get("manifests/" + d.String())
	listed, _, _ := referrersPages(t, r, "/v2/k/i/referrers/"+d.String())
	switch {
	case p.deleted:
		assert.Equal(t, http.StatusNotFound, m.status, "image %d was deleted", n)
		assert.Equal(t, http.StatusNotFound, get("manifests/"+referrer.String()).status, "its referrer, too")
		assert.Empty(t, listed)
	case p.stored && !p.deleting:
		whole(t, m, d, true)
		whole(t, get(fmt.Sprintf("manifests/v%d", n)), d, true)
		whole(t, get("blobs/"+digest.FromBytes(p.layer).String()), digest.FromBytes(p.layer), true)
		if p.signed {
			assert.Equal(t, []digest.Digest{referrer}, listed, "of image %d", n)
		}
	case m.status == http.StatusOK:
		whole(t, get("blobs/"+digest.FromBytes(p.layer).String()), digest.FromBytes(p.layer), true)
	}
	for _, d := range listed {
		whole(t, get("manifests/"+d.String()), d, true)
	}
}
