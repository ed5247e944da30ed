package forwarder_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/forwarder"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/transfer"
)

// told is what clients are told, the last of it.
type told struct {
	mu    sync.Mutex
	now   forwarder.Mirror
	times int
	fail  error
}

func (c *told) serving(m forwarder.Mirror) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times++
	if c.fail != nil {
		return c.fail
	}
	c.now = m
	return nil
}

func (c *told) get() (forwarder.Mirror, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.times
}

// run lets the lab's forwarder serve until the test ends.
func (l *lab) run(t testing.TB) *told {
	t.Helper()
	c := &told{}
	l.o.Serving = c.serving
	l.f = l.new(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- l.f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-over)
	})
	return c
}

const soon, tick = 20 * time.Second, 20 * time.Millisecond

func (c *told) wait(t testing.TB, fits func(forwarder.Mirror) bool) forwarder.Mirror {
	t.Helper()
	require.Eventually(t, func() bool { m, _ := c.get(); return fits(m) }, soon, tick)
	m, _ := c.get()
	return m
}

func serves(m forwarder.Mirror) bool { return m.Address != "" }

// client has the files with which the node's programs reach the forwarder.
type client struct{ dir, certs, ca, auth, conf string }

func clientOf(t testing.TB, m forwarder.Mirror) client {
	t.Helper()
	dir := t.TempDir()
	c := client{dir: dir, certs: filepath.Join(dir, "certs.d"), auth: filepath.Join(dir, "auth.json"),
		conf: filepath.Join(dir, "registries.conf")}
	c.ca = filepath.Join(c.certs, m.Address, "ca.crt")
	require.NoError(t, os.MkdirAll(filepath.Dir(c.ca), 0o755))
	require.NoError(t, os.WriteFile(c.ca, []byte(m.CA), 0o600))
	auth, err := credentials.Encode(ownAccount, m.Address)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.auth, auth, 0o600))
	conf := fmt.Sprintf("[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\n", m.Registry, m.Address)
	require.NoError(t, os.WriteFile(c.conf, []byte(conf), 0o600))
	return c
}

func TestItServesWhileThereArePeers(t *testing.T) {
	l := newLab(t, 2)
	require.NoError(t, os.Remove(l.o.PeersFile))
	c := l.run(t)
	state := func() (s forwarder.State) {
		raw, err := os.ReadFile(l.o.StateFile)
		if err != nil {
			return s
		}
		require.NoError(t, json.Unmarshal(raw, &s))
		return s
	}
	require.Eventually(t, func() bool { return state().Peers != nil }, soon, tick)
	assert.Empty(t, state().Listen, "nobody is to be asked, nobody is answered")
	_, times := c.get()
	assert.Zero(t, times)

	require.NoError(t, l.list.Write(l.o.PeersFile))
	m := c.wait(t, serves)
	assert.Equal(t, l.list.Registry, m.Registry)
	require.Eventually(t, func() bool { return state().Listen == m.Address && len(state().Peers) == 2 }, soon, tick)

	one := peers.List{Registry: l.list.Registry, Peers: l.list.Peers[:1]}
	require.NoError(t, one.Write(l.o.PeersFile))
	require.Eventually(t, func() bool { return len(state().Peers) == 1 }, soon, tick)
	_, times = c.get()
	assert.Equal(t, 1, times, "clients need not know that a control-plane node has gone")

	require.NoError(t, os.WriteFile(l.o.PeersFile, []byte("{"), 0o600))
	require.Eventually(t, func() bool { return strings.Contains(state().Error, "damaged") }, soon, tick)
	assert.Equal(t, m.Address, state().Listen, "it goes on with what it has read")

	require.NoError(t, os.Remove(l.o.PeersFile))
	c.wait(t, func(m forwarder.Mirror) bool { return m == forwarder.Mirror{} })
	require.Eventually(t, func() bool { return state().Listen == "" }, soon, tick)
	_, err := net.DialTimeout("tcp", m.Address, time.Second)
	assert.Error(t, err)
}

func TestAPortThatIsTakenIsTriedAgain(t *testing.T) {
	l := newLab(t, 1)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.o.Listen = other.Addr().String()
	c := l.run(t)
	require.Eventually(t, func() bool { return strings.Contains(l.f.State().Error, "another process") }, soon, tick)
	require.NoError(t, other.Close())
	assert.Equal(t, l.o.Listen, c.wait(t, serves).Address)
}

func TestTellingIsRepeated(t *testing.T) {
	l := newLab(t, 1)
	c := l.run(t)
	c.wait(t, serves)
	c.mu.Lock()
	c.fail = errors.New("the disk is full")
	c.now = forwarder.Mirror{}
	c.mu.Unlock()
	require.NoError(t, os.Remove(l.o.PeersFile))
	require.Eventually(t, func() bool { _, n := c.get(); return n >= 3 }, soon, tick)
}

func TestBadOptions(t *testing.T) {
	good := forwarder.Options{Node: "n", PeersFile: "p", Account: ownAccount}
	for _, c := range []struct {
		name   string
		change func(*forwarder.Options)
		want   string
	}{
		{"no node", func(o *forwarder.Options) { o.Node = "" }, "Node"},
		{"no password", func(o *forwarder.Options) { o.Account.Password = "" }, "Account"},
		{"every address", func(o *forwarder.Options) { o.Listen = "0.0.0.0:1" }, "loopback"},
		{"a name", func(o *forwarder.Options) { o.Listen = "localhost:1" }, "loopback"},
		{"no port", func(o *forwarder.Options) { o.Listen = "127.0.0.1" }, "HOST:PORT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := good
			c.change(&o)
			_, err := forwarder.New(o)
			assert.ErrorContains(t, err, c.want)
		})
	}
	_, err := forwarder.New(good)
	require.NoError(t, err)
}

// imageFaults are what a peer does while an image is pulled.
func imageFaults(p *peer) []struct {
	name  string
	fault faultproxy.Fault
} {
	return []struct {
		name  string
		fault faultproxy.Fault
	}{
		{"none", nil},
		{"silent", faultproxy.Silent},
		{"cut", faultproxy.Cut},
		{"429", retryAfter(429, "60")},
		{"500", faultproxy.Status(500)},
		{"blobs die", faultproxy.On("/blobs/", p.Dying(700))},
		{"blobs stop", faultproxy.On("/blobs/", p.Stopping(300))},
		{"small blobs are wrong", faultproxy.On("/blobs/", p.Changed(func(b []byte) []byte {
			if len(b) < 100_000 {
				return flipped(b)
			}
			return b
		}))},
		{"manifests are wrong", faultproxy.On("/manifests/", p.Changed(flipped))},
	}
}

// containers/image pulls an image by its final name, which nobody serves, through the forwarder.
func TestContainersImagePullsThroughIt(t *testing.T) {
	l := newLab(t, 3)
	img := l.image(t, 1<<20, 3)
	for _, f := range imageFaults(l.peers[0]) {
		t.Run(f.name, func(t *testing.T) {
			l.peers[0].Spoil(f.fault)
			c := clientOf(t, l.run(t).wait(t, serves))
			conf, err := os.ReadFile(c.conf)
			require.NoError(t, err)
			d := digestOf(t, img)
			layout := filepath.Join(t.TempDir(), "layout")
			res, err := transfer.Copy(t.Context(), transfer.Endpoint{
				Reference: l.list.Registry + "/" + repo + "@" + d, CAFile: c.ca, AuthFile: c.auth, RegistriesConf: conf},
				transfer.Endpoint{Reference: "oci:" + layout}, transfer.Options{Attempts: 1})
			require.NoError(t, err)
			assert.Equal(t, d, res.Digest.String())
			assertLayout(t, layout, img)
		})
	}
	t.Run("all are away", func(t *testing.T) {
		for _, p := range l.peers {
			p.Spoil(faultproxy.Status(500))
		}
		c := clientOf(t, l.run(t).wait(t, serves))
		// The final registry is a peer here, by itself.
		l.peers[1].Spoil(faultproxy.First(1, faultproxy.Status(500)))
		conf := fmt.Sprintf("[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\n",
			l.list.Peers[1].Address, filepath.Base(filepath.Dir(c.ca)))
		ca, err := os.ReadFile(l.caFile())
		require.NoError(t, err)
		both := appendFile(t, c.ca, ca)
		auth, err := credentials.Encode(credentials.Account{Username: "puller", Password: "canary-of-the-peers"},
			l.list.Peers[1].Address)
		require.NoError(t, err)
		own, err := os.ReadFile(c.auth)
		require.NoError(t, err)
		merged, err := credentials.Merge(own, auth)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(c.auth, merged, 0o600))
		d := digestOf(t, img)
		res, err := transfer.Copy(t.Context(), transfer.Endpoint{Reference: l.list.Peers[1].Address + "/" + repo + "@" + d,
			CAFile: both, AuthFile: c.auth, RegistriesConf: []byte(conf)},
			transfer.Endpoint{Reference: "oci:" + filepath.Join(t.TempDir(), "layout")}, transfer.Options{Attempts: 1})
		require.NoError(t, err, "it asks the final registry")
		assert.Equal(t, d, res.Digest.String())
		assert.Positive(t, l.f.State().Peers[0].Failures)
	})
}

func appendFile(t testing.TB, path string, more []byte) string {
	t.Helper()
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	both := filepath.Join(t.TempDir(), "both.crt")
	require.NoError(t, os.WriteFile(both, append(have, more...), 0o600))
	return both
}

func assertLayout(t testing.TB, dir string, img v1.Image) {
	t.Helper()
	layers, err := img.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		d, err := layer.Digest()
		require.NoError(t, err)
		assert.FileExists(t, filepath.Join(dir, "blobs", d.Algorithm, d.Hex))
	}
}

// tool finds a program of the host; in CI a missing one is a failure.
func tool(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: install the package %s", program, program)
		}
		t.Skipf("%s is missing: install the package %s", program, program)
	}
	return path
}

// Debian's skopeo and podman do the same; podman with the node's own files.
func TestProgramsPullThroughIt(t *testing.T) {
	l := newLab(t, 3)
	img := l.image(t, 1<<20, 3)
	ref := l.list.Registry + "/" + repo + "@" + digestOf(t, img)
	for _, f := range imageFaults(l.peers[0]) {
		t.Run("skopeo, "+f.name, func(t *testing.T) {
			l.peers[0].Spoil(f.fault)
			c := clientOf(t, l.run(t).wait(t, serves))
			layout := filepath.Join(c.dir, "layout")
			c.do(t, tool(t, "skopeo"), "--registries-conf", c.conf, "copy", "--preserve-digests", "--src-authfile", c.auth,
				"--src-cert-dir", filepath.Dir(c.ca), "docker://"+ref, "oci:"+layout)
			assertLayout(t, layout, img)
		})
	}
	t.Run("podman", func(t *testing.T) {
		if os.Geteuid() != 0 {
			require.Empty(t, os.Getenv("CI"), "needs root")
			t.Skip("podman's storage needs root here")
		}
		l.peers[0].Spoil(faultproxy.On("/blobs/", l.peers[0].Dying(700)))
		c := clientOf(t, l.run(t).wait(t, serves))
		run, err := os.MkdirTemp("", "run") // podman takes no long ones
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, os.RemoveAll(run)) })
		store := []string{"--root", filepath.Join(c.dir, "store"), "--runroot", run, "--storage-driver", "vfs"}
		podman := tool(t, "podman")
		c.do(t, podman, append(store, "pull", "--authfile", c.auth, "--cert-dir", filepath.Dir(c.ca), ref)...)
		assert.Contains(t, c.do(t, podman, append(store, "images", "--digests")...), digestOf(t, img))
	})
}

func (c client) do(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "CONTAINERS_REGISTRIES_CONF="+c.conf)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// A node's clients do not get more than their share of the peers, nor of the node's memory.
func TestTransfersAreBounded(t *testing.T) {
	l := newLab(t, 1)
	data, d := l.blob(t, 1<<20)
	var now, most atomic.Int64
	release := make(chan struct{})
	l.peers[0].Spoil(func(http.ResponseWriter, *http.Request) bool {
		n := now.Add(1)
		defer now.Add(-1)
		for have := most.Load(); n > have && !most.CompareAndSwap(have, n); have = most.Load() {
		}
		<-release
		return false
	})
	l.f.Shorten(soon, soon, soon)
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			got := l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
			assert.Len(t, got.body, len(data))
		})
	}
	assert.Eventually(t, func() bool { return now.Load() == 32 }, soon, tick)
	close(release)
	clients.Wait()
	assert.EqualValues(t, 32, most.Load())
	assert.Zero(t, l.f.State().Transfers)
}

func TestMetrics(t *testing.T) {
	l := newLab(t, 2)
	_, d := l.blob(t, 1<<20)
	l.peers[0].Spoil(l.peers[0].Dying(500))
	l.ask(t, http.MethodGet, "/v2/"+repo+"/blobs/"+d.String())
	var out strings.Builder
	l.f.State().WriteMetrics(&out)
	for _, line := range []string{
		fmt.Sprintf("dayone_forwarder_failures_total{peer=%q} 1", l.list.Peers[0].Name),
		fmt.Sprintf("dayone_forwarder_bytes_total{peer=%q} 524288", l.list.Peers[0].Name),
		fmt.Sprintf("dayone_forwarder_bytes_total{peer=%q} 524288", l.list.Peers[1].Name),
		fmt.Sprintf("dayone_forwarder_peer_away{peer=%q} 1", l.list.Peers[0].Name),
		fmt.Sprintf("dayone_forwarder_answers_total{peer=%q} 1", l.list.Peers[1].Name),
		"dayone_forwarder_switches_total 1", "dayone_forwarder_broken_total 0", "dayone_forwarder_transfers 0",
	} {
		assert.Contains(t, out.String(), line+"\n")
	}
}
