package replica_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// patience is for a busy machine.
	patience = time.Minute
	pause    = 10 * time.Millisecond
	// every is how often a replica looks. Graces are longer than twice that, as in the field.
	every = 5 * pause
	repo  = "ns/os"
)

// world is a control plane: registries that share a CA and accounts, as on real nodes.
type world struct {
	t            testing.TB
	shared       string // ca.crt, ca.key, pull-auth.json
	pusher, pull registry.User
	sites        []*site

	mu   sync.Mutex
	list peers.List
}

// site is the registry of one node.
type site struct {
	*registrytest.Registry
	dir  string
	down bool
}

func newWorld(t testing.TB, n int, change ...func(i int, o *registry.Options, r *replica.Options)) *world {
	t.Helper()
	w := &world{t: t, shared: t.TempDir()}
	_, err := certs.LoadOrCreateCA(w.shared, certs.CAOptions{})
	require.NoError(t, err)
	w.pusher, err = registry.NewUser("push", registry.RolePush)
	require.NoError(t, err)
	w.pull, err = registry.NewUser("pull", registry.RolePull)
	require.NoError(t, err)
	registrytest.WriteAuthFile(t, filepath.Join(w.shared, "pull-auth.json"), "api-int.example.com:22626", w.pull)
	for i := range n {
		s := &site{dir: t.TempDir()}
		tls := t.TempDir()
		require.NoError(t, os.CopyFS(tls, os.DirFS(w.shared)))
		beside := w.options(fmt.Sprintf("m%d", i), s.dir)
		s.Registry = registrytest.Start(t, func(o *registry.Options) {
			o.TLSDir, o.Users = tls, []registry.User{w.pusher, w.pull}
			for _, c := range change {
				c(i, o, &beside)
			}
			o.Beside = func(ctx context.Context, store *storage.Store) { replica.Run(ctx, store, beside) }
		})
		w.sites = append(w.sites, s)
		w.list.Peers = append(w.list.Peers, peers.Peer{Name: fmt.Sprintf("m%d", i), Address: s.Addr})
	}
	return w
}

func (w *world) options(self, dir string) replica.Options {
	return replica.Options{Dir: dir, Self: self, CAFile: filepath.Join(w.shared, "ca.crt"),
		AuthFile: filepath.Join(w.shared, "pull-auth.json"), Every: every, Silence: time.Second, BytesPerSecond: 1 << 40,
		Peers: func() (peers.List, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.list, nil
		}}
}

// know makes other addresses the control plane's.
func (w *world) know(list ...peers.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = peers.List{Peers: list}
}

func (w *world) remote(s *site, as registry.User) []remote.Option {
	return []remote.Option{remote.WithTransport(s.Transport(w.t)), remote.WithContext(w.t.Context()),
		remote.WithAuth(&authn.Basic{Username: as.Name, Password: as.Password})}
}

// pushImage pushes an image of random layers.
func (w *world) pushImage(s *site, size int64, layers int64) (v1.Image, wanted.Image) {
	w.t.Helper()
	img, err := random.Image(size, layers)
	require.NoError(w.t, err)
	return img, w.push(s, img)
}

func (w *world) push(s *site, img v1.Image) wanted.Image {
	w.t.Helper()
	d, err := img.Digest()
	require.NoError(w.t, err)
	to, err := name.NewDigest(s.Addr + "/" + repo + "@" + d.String())
	require.NoError(w.t, err)
	require.NoError(w.t, remote.Write(to, img, w.remote(s, w.pusher)...))
	return wanted.Image{Repository: repo, Digest: digest.Digest(d.String()), By: []string{"node w1 (current)"}}
}

// want gives every registry the list.
func (w *world) want(images ...wanted.Image) wanted.List {
	w.t.Helper()
	l := wanted.New(time.Now(), images)
	for _, s := range w.sites {
		w.give(s, l)
	}
	return l
}

func (w *world) give(s *site, l wanted.List) {
	w.t.Helper()
	raw, err := l.Encode()
	require.NoError(w.t, err)
	_, err = wanted.WriteFile(filepath.Join(s.dir, wanted.ListFile), raw)
	require.NoError(w.t, err)
}

func (w *world) report(s *site) wanted.Report {
	w.t.Helper()
	r, _, err := wanted.ReadReport(filepath.Join(s.dir, wanted.ReportFile), time.Now())
	require.NoError(w.t, err)
	return r
}

// ready waits until a registry has said that it has all of a list.
func (w *world) ready(s *site, l wanted.List) {
	w.t.Helper()
	w.until(s, func(r wanted.Report) bool { return r.Ready && r.List == l.Hash() })
}

// until waits for a report.
func (w *world) until(s *site, is func(wanted.Report) bool) wanted.Report {
	w.t.Helper()
	var last wanted.Report
	require.Eventually(w.t, func() bool { last = w.report(s); return is(last) }, patience, pause,
		"the last report is %+v", &last)
	return last
}

// whole pulls an image with every byte, as a node does.
func (w *world) whole(s *site, i wanted.Image) error {
	from, err := name.NewDigest(s.Addr + "/" + i.Name())
	if err != nil {
		return err
	}
	img, err := remote.Image(from, w.remote(s, w.pull)...)
	if err != nil {
		return err
	}
	return validate.Image(img)
}

// has asks a registry for a path.
func (w *world) status(s *site, path string) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, s.URL()+"/v2/"+path, nil)
	require.NoError(w.t, err)
	req.SetBasicAuth(w.pull.Name, w.pull.Password)
	resp, err := s.Transport(w.t).RoundTrip(req)
	require.NoError(w.t, err)
	_, _ = io.Copy(io.Discard, resp.Body) // the status says enough
	require.NoError(w.t, resp.Body.Close())
	return resp.StatusCode
}

// attach pushes what refers to an image, as a referrer and under a tag of cosign's.
func (w *world) attach(s *site, to v1.Image) (referrer digest.Digest, tag string) {
	w.t.Helper()
	subject, err := to.Digest()
	require.NoError(w.t, err)
	size, err := to.Size()
	require.NoError(w.t, err)
	empty := []byte("{}")
	descriptor := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": kind, "digest": digest.FromBytes(b).String(), "size": len(b)}
	}
	manifest := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("application/vnd.oci.empty.v1+json", empty), "layers": []any{
			descriptor("application/octet-stream", empty)}}
	w.send(s, http.MethodPost, "blobs/uploads/?digest="+digest.FromBytes(empty).String(), empty)
	tag = "sha256-" + subject.Hex + ".sig"
	body, err := json.Marshal(manifest)
	require.NoError(w.t, err)
	w.send(s, http.MethodPut, "manifests/"+tag, body)
	manifest["artifactType"] = "text/x.test"
	manifest["subject"] = map[string]any{"mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"digest": subject.String(), "size": size}
	body, err = json.Marshal(manifest)
	require.NoError(w.t, err)
	referrer = digest.FromBytes(body)
	w.send(s, http.MethodPut, "manifests/"+string(referrer), body)
	return referrer, tag
}

func (w *world) send(s *site, method, path string, body []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, s.URL()+"/v2/"+repo+"/"+path, bytes.NewReader(body))
	require.NoError(w.t, err)
	req.SetBasicAuth(w.pusher.Name, w.pusher.Password)
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	resp, err := s.Transport(w.t).RoundTrip(req)
	require.NoError(w.t, err)
	_, _ = io.Copy(io.Discard, resp.Body) // the status says enough
	require.NoError(w.t, resp.Body.Close())
	require.Equal(w.t, http.StatusCreated, resp.StatusCode, path)
}

// lose ends a registry; with wipe its disk is lost, too.
func (w *world) lose(s *site, wipe bool) {
	w.t.Helper()
	s.Stop(w.t)
	s.down = true
	if !wipe {
		return
	}
	require.NoError(w.t, os.RemoveAll(s.Options.Root))
	entries, err := os.ReadDir(s.dir)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(w.t, err)
	}
	for _, e := range entries {
		require.NoError(w.t, os.Remove(filepath.Join(s.dir, e.Name())))
	}
}

func (w *world) back(s *site) {
	w.t.Helper()
	s.Restart(w.t)
	s.down = false
}
