package pull

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/faultproxy"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// dying ends the connection in the middle of each layer.
func dying(layer string) deploytest.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, layer) {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}) // the connection ends in any case
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// TestImportFromBrokenMirror: a mirror that is silent, or dies in a blob, is a fault of the network, and the next one
// is asked.
func TestImportFromBrokenMirror(t *testing.T) {
	img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...))
	layers, err := img.Layers()
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		fault deploytest.Fault
	}{
		{"silent about all", faultproxy.Silent},
		{"silent about manifests", faultproxy.On("/manifests/", faultproxy.Silent)},
		{"silent about blobs", faultproxy.On("/blobs/", faultproxy.Silent)},
		{"dies in a blob", dying(mustDigest(t, layers[0]).String())},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo, broken, good := deploytest.NewRepository(t), deploytest.StartRegistry(t), deploytest.StartRegistry(t)
			broken.Push(t, img, "ocp/master-os")
			final := strings.Replace(good.Push(t, img, "ocp/master-os"), good.Addr, "registry.invalid", 1)
			broken.Spoil(c.fault)
			o := clientOf(t, broken, good)
			o.RegistriesConfDir = mirrors(t, broken)
			_, err := Import(t.Context(), repo, final, o)
			require.Error(t, err)
			assert.Equal(t, deploy.ClassUnreachable, deploy.ClassOf(err), err)
			o.RegistriesConfDir = mirrors(t, broken, good)
			done, err := Import(t.Context(), repo, final, o)
			require.NoError(t, err)
			assert.Contains(t, done.Source, good.Addr)
		})
	}
}

// TestMirrorThatDropsPackets: its connections are never answered. It counts as unreachable after the limit, the next
// mirror is asked, and who asks that one first does not wait again.
func TestMirrorThatDropsPackets(t *testing.T) {
	img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...))
	repo, good := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	final := strings.Replace(good.Push(t, img, "ocp/master-os"), good.Addr, "registry.invalid", 1)
	o := clientOf(t, good)
	o.RegistriesConfDir = mirrors(t, &deploytest.Registry{Addr: dropping(t)}, good)
	found, err := Inspect(t.Context(), "docker://"+final, o)
	require.NoError(t, err)
	assert.Contains(t, found.Source, good.Addr)

	o.First, o.StallTimeout = found.Source, time.Hour // to ask the other one would take the kernel's two minutes
	short, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done, err := Import(short, repo, "docker://"+final, o)
	require.NoError(t, err)
	assert.Equal(t, found.Source, done.Source)
}

// TestMirrorThatTakesConnectionsOnly: it accepts each connection and never says a word, not even of TLS, as the load
// balancer of a registry that is gone.
func TestMirrorThatTakesConnectionsOnly(t *testing.T) {
	img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Base("1")...))
	repo, good := deploytest.NewRepository(t), deploytest.StartRegistry(t)
	final := strings.Replace(good.Push(t, img, "ocp/master-os"), good.Addr, "registry.invalid", 1)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = mute.Close() })
	o := clientOf(t, good)
	o.RegistriesConfDir = mirrors(t, &deploytest.Registry{Addr: mute.Addr().String()}, good)
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done, err := Import(short, repo, final, o)
	require.NoError(t, err)
	assert.Contains(t, done.Source, good.Addr)
}

// dropping is the address of a host that drops packets: the kernel answers no connection beyond those that wait to be
// accepted, and nobody accepts.
func dropping(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
	for {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() }) // it only takes a place
	}
}

// clientOf trusts the registries and knows their account.
func clientOf(t *testing.T, registries ...*deploytest.Registry) Options {
	t.Helper()
	certs, auths := t.TempDir(), []string{}
	for _, g := range registries {
		require.NoError(t, os.MkdirAll(filepath.Join(certs, g.Addr), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(certs, g.Addr, "ca.crt"), g.Authority.PEM, 0o644))
		auths = append(auths, `"`+g.Addr+`":{"auth":"cHVsbGVyOnMzY3JldC1jYW5hcnk="}`)
	}
	auth := filepath.Join(t.TempDir(), "auth.json")
	require.NoError(t, os.WriteFile(auth, []byte(`{"auths":{`+strings.Join(auths, ",")+`}}`), 0o600))
	return Options{CertsDir: certs, AuthFile: auth, StallTimeout: 2 * time.Second}
}

// mirrors is a registries.conf.d in which the registries are the final one's mirrors, in this order.
func mirrors(t *testing.T, registries ...*deploytest.Registry) string {
	t.Helper()
	text := "[[registry]]\nlocation = \"registry.invalid/ocp/master-os\"\n"
	for _, g := range registries {
		text += "[[registry.mirror]]\nlocation = \"" + g.Addr + "/ocp/master-os\"\n"
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "50-test.conf"), []byte(text), 0o644))
	return dir
}
