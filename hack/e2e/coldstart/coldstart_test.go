package coldstart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// final is in the names of images. No host has this name, so that nothing but the node's mirror can serve them.
	final      = "api-int.lab.example.com:22626"
	repository = "ocp/master-os"
	patience   = 3 * time.Minute
	pause      = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	testnode.Init()
	os.Exit(m.Run())
}

// world is one control-plane node.
type world struct {
	t      *testing.T
	lab    *testnode.Lab
	node   *testnode.Node
	stock  string // the first deployment's tree
	shared *clusterregistry.Shared
	base   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("boots nodes: left out with -short")
	}
	if err := testnode.Missing(); err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	w := &world{t: t}
	var err error
	w.base, err = baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	w.lab, err = testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.lab.Close(context.Background())) })
	w.node, err = w.lab.NewNode(t.Context(), "m0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: w.base}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, unit := range []string{"dayone-registry", "dayone-agent"} {
				r, err := w.node.Exec(context.Background(), "journalctl", "--no-pager", "-u", unit)
				t.Logf("%s: %v\n%s", unit, err, r.Stdout)
			}
		}
	})
	w.shared, err = clusterregistry.LoadOrCreate(filepath.Join(t.TempDir(), "shared"), final)
	require.NoError(t, err)
	dirs, err := filepath.Glob(filepath.Join(w.stateroot(), "deploy/*.0"))
	require.NoError(t, err)
	require.Len(t, dirs, 1)
	w.stock = dirs[0]
	return w
}

func (w *world) stateroot() string {
	return filepath.Join(w.node.Sysroot, "ostree/deploy", testnode.Stateroot)
}

// put writes a file of the node.
func (w *world) put(path string, mode fs.FileMode, content []byte) {
	w.t.Helper()
	at := filepath.Join(w.stock, path)
	if rest, ok := strings.CutPrefix(path, "/var/"); ok {
		at = filepath.Join(w.stateroot(), "var", rest)
	} else if rest, ok := strings.CutPrefix(path, "/usr/local/"); ok {
		at = filepath.Join(w.stateroot(), "var/usrlocal", rest)
	}
	require.NoError(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(w.t, os.WriteFile(at, content, mode))
	require.NoError(w.t, os.Chmod(at, mode))
}

// install brings what a control-plane node has: the MachineConfig of the registries, the agent's unit, both programs,
// the cluster's CA and pull secret, and the addresses that its agent has once read from the API.
func (w *world) install() {
	w.t.Helper()
	for _, name := range []string{"dayone-registry", "dayone-daemon"} {
		to := filepath.Join(w.t.TempDir(), name)
		require.NoError(w.t, program.Build(w.t.Context(), "../../..", program.Options{Package: "dayone.dev/dayone/cmd/" +
			name}, to))
		raw, err := os.ReadFile(to)
		require.NoError(w.t, err)
		w.put("/usr/local/bin/"+name, 0o755, raw)
	}
	mc, err := w.shared.MachineConfig("master", true)
	require.NoError(w.t, err)
	config, err := machineconfig.Parse(mc.Spec.Config.Raw)
	require.NoError(w.t, err)
	for _, f := range append(config.Storage.Files, w.shared.NodeFiles()...) {
		content, err := machineconfig.Contents(f.Contents)
		require.NoError(w.t, err)
		w.put(f.Path, fs.FileMode(*f.Mode), content)
	}
	agent, err := assets.AgentUnit()
	require.NoError(w.t, err)
	units := map[string]string{assets.AgentUnitName: agent}
	for _, u := range config.Systemd.Units {
		units[u.Name] = *u.Contents
	}
	for unit, text := range units {
		w.put("/etc/systemd/system/"+unit, 0o644, []byte(text))
		at := filepath.Join(w.stock, "etc/systemd/system/multi-user.target.wants", unit)
		require.NoError(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(w.t, os.Symlink("/etc/systemd/system/"+unit, at))
	}
	w.put("/etc/containers/certs.d/"+final+"/ca.crt", 0o644, w.shared.CA)
	w.put(poolaccounts.AuthPath, 0o600, w.shared.PullAuth)
	at := filepath.Join(w.t.TempDir(), "peers.json")
	require.NoError(w.t, peers.List{Registry: final, Peers: []peers.Peer{{Name: "m0", Address: w.address()}}}.Write(at))
	raw, err := os.ReadFile(at)
	require.NoError(w.t, err)
	w.put(peers.Path, 0o644, raw)
}

func (w *world) address() string { return net.JoinHostPort(w.node.Addr.String(), "22626") }

// push pushes an image that differs from the base in one file, as a build does, and gives it by digest.
func (w *world) push() wanted.Image {
	w.t.Helper()
	index, err := layout.ImageIndexFromPath(w.base)
	require.NoError(w.t, err)
	m, err := index.IndexManifest()
	require.NoError(w.t, err)
	base, err := index.Image(m.Manifests[0].Digest)
	require.NoError(w.t, err)
	image, err := mutate.AppendLayers(base, deploytest.Layer(w.t, deploytest.Entry{Name: "etc/from-image", Body: "new\n"}))
	require.NoError(w.t, err)
	hash, err := image.Digest()
	require.NoError(w.t, err)
	w.send(image, hash)
	return wanted.Image{Repository: repository, Digest: digest.Digest(hash.String()), By: []string{"pool master"}}
}

func (w *world) send(image v1.Image, hash v1.Hash) {
	w.t.Helper()
	accounts, err := credentials.Parse(w.shared.PushAuth)
	require.NoError(w.t, err)
	a, _, err := accounts.Find(final)
	require.NoError(w.t, err)
	pool := x509.NewCertPool()
	require.True(w.t, pool.AppendCertsFromPEM(w.shared.CA))
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			return c, errors.Join(w.lab.Network.Do(func() (err error) {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			}))
		}}
	defer tr.CloseIdleConnections()
	to, err := name.NewDigest(w.address() + "/" + repository + "@" + hash.String())
	require.NoError(w.t, err)
	require.NoError(w.t, remote.Write(to, image, remote.WithTransport(tr), remote.WithContext(w.t.Context()),
		remote.WithAuth(&authn.Basic{Username: a.Username, Password: a.Password})))
}

func (w *world) start() {
	w.t.Helper()
	require.NoError(w.t, w.node.Start(w.t.Context()))
	require.NoError(w.t, w.node.WaitReady(w.t.Context()))
}

func (w *world) output(argv ...string) string {
	w.t.Helper()
	out, err := w.node.Output(w.t.Context(), argv...)
	require.NoError(w.t, err)
	return out
}

// until waits for a command in the node to succeed.
func (w *world) until(what, script string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		r, err := w.node.Exec(w.t.Context(), "sh", "-c", script)
		return err == nil && r.ExitCode == 0
	}, patience, pause, what)
}

// TestColdStart: a control-plane node alone, without API and kubelet. Its registry and its forwarder come with the
// host's boot, also after a power cut, and the node's deployer pulls its next image from them and boots it.
func TestColdStart(t *testing.T) {
	w := newWorld(t)
	w.install()
	w.start()
	w.until("the registry runs", "systemctl is-active dayone-registry.service")
	w.until("the registry reports", "test -e /var/lib/dayone/replica/report.json")
	image := w.push()
	raw, err := wanted.New(time.Now(), []wanted.Image{image}).Encode()
	require.NoError(t, err)
	w.put(filepath.Join(wanted.Dir, wanted.ListFile), 0o600, raw)
	w.until("it holds the image", "grep -q '\"ready\":true' /var/lib/dayone/replica/report.json")

	require.NoError(t, w.node.PowerCut(t.Context()))
	w.start()
	assert.Equal(t, "active", w.output("systemctl", "is-active", "dayone-registry.service"))
	assert.NotContains(t, w.output("systemctl", "list-units", "--state=active", "--no-legend"), "kubelet")
	w.until("pulls go through the forwarder", "test -e /etc/containers/registries.conf.d/60-dayone-registry.conf")
	w.output("/usr/local/bin/dayone-daemon", "stage", final+"/"+image.Name())
	assert.Contains(t, w.output("/usr/local/bin/dayone-daemon", "status"), "127.0.0.1:22627")
	require.NoError(t, w.node.Reboot(t.Context()))
	assert.Equal(t, "new", w.output("cat", "/etc/from-image"))
	w.until("the registry serves from the new deployment", "systemctl is-active dayone-registry.service && "+
		"systemctl is-active dayone-agent.service")
	assert.Contains(t, w.output("journalctl", "--no-pager", "-u", "dayone-agent"), "waiting for the kubeconfig",
		"there has been no API")
}
