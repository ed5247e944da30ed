package pinnedimages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// host is the root of a node with podman's store in it; podman is the machine's own.
type host struct {
	Store
	reloads int
	refuse  error
}

func newHost(t *testing.T, g *deploytest.Registry) *host {
	t.Helper()
	if _, err := exec.LookPath("podman"); err != nil {
		require.Empty(t, os.Getenv("CI"), "podman is required")
		t.Skip("no podman on this machine")
	}
	root := t.TempDir()
	write := func(path, text string) string {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	// What the node's configuration says of the registry: the final name has a mirror, as everywhere on Day 1.
	mirror := fmt.Sprintf("[[registry]]\nprefix = \"final.example.com/apps\"\nlocation = \"final.example.com/apps\"\n"+
		"[[registry.mirror]]\nlocation = %q\n", g.Addr+"/apps")
	write("etc/containers/registries.conf.d/50-mirror.conf", mirror)
	ca, err := os.ReadFile(filepath.Join(g.CertsDir, g.Addr, "ca.crt"))
	require.NoError(t, err)
	write("etc/containers/certs.d/"+g.Addr+"/ca.crt", string(ca))
	auth, err := os.ReadFile(g.AuthFile)
	require.NoError(t, err)
	write("var/lib/kubelet/config.json", string(auth))
	write("etc/crio/crio.conf.d/00-default", "[crio]\n")
	// podman itself finds them by its environment.
	t.Setenv("CONTAINERS_REGISTRIES_CONF", write("etc/containers/registries.conf", mirror))
	t.Setenv("CONTAINERS_STORAGE_CONF", write("etc/containers/storage.conf", fmt.Sprintf(
		"[storage]\ndriver = \"vfs\"\nrunroot = %q\ngraphroot = %q\n", filepath.Join(root, "run/store"),
		filepath.Join(root, imageStore))))
	machine := filepath.Join("/etc/containers/certs.d", g.Addr)
	require.NoError(t, os.MkdirAll(machine, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(machine) })
	require.NoError(t, os.WriteFile(filepath.Join(machine, "ca.crt"), ca, 0o600))
	h := &host{}
	h.Store = Store{Root: root, Reserve: 1, Log: report.NoLog(), Reload: func(context.Context) error {
		h.reloads++
		return h.refuse
	}}
	return h
}

func (h *host) pinned() string {
	raw, err := os.ReadFile(h.at(dropIn))
	if err != nil {
		return "(none)"
	}
	return string(raw)
}

// TestPinned pulls with the machine's podman through a mirror that asks for a password, and looks at what CRI-O would
// read. CRI-O itself does not run here.
func TestPinned(t *testing.T) {
	g := deploytest.StartRegistry(t)
	h := newHost(t, g)
	final := func(name string) string {
		img := deploytest.Image(t, deploytest.Options{}, deploytest.Layer(t, deploytest.Entry{Name: name, Body: name}))
		_, digest, _ := strings.Cut(g.Push(t, img, "apps/"+name), "@")
		return "final.example.com/apps/" + name + "@" + digest
	}
	one, two := final("one"), final("two")
	require.NoError(t, h.Pin(t.Context(), []string{two, one}))
	// The bytes that MCO's agent writes for the same images: a node that it has pinned images on is not reloaded.
	want := fmt.Sprintf("[crio]\n  [crio.image]\n    pinned_images = [%q, %q]\n", one, two)
	assert.Equal(t, want, h.pinned())
	assert.Equal(t, 1, h.reloads)
	missing, err := h.missing(t.Context(), []string{one, two})
	require.NoError(t, err)
	assert.Empty(t, missing, "podman has them")

	g.Spoil(deploytest.Status(503))
	require.NoError(t, h.Pin(t.Context(), []string{two, one}), "what is there needs no registry")
	assert.Equal(t, 1, h.reloads, "nothing new, nothing read")
	g.Spoil(nil)

	three := final("three")
	h.Reserve = 1 << 60
	err = h.Pin(t.Context(), []string{one, three})
	require.ErrorContains(t, err, "MiB needed")
	assert.Equal(t, deploy.ClassDiskFull, deploy.ClassOf(err))
	assert.Equal(t, want, h.pinned(), "a failure leaves what is pinned")
	h.Reserve = 1

	gone := "final.example.com/apps/gone@sha256:" + strings.Repeat("1", 64)
	err = h.Pin(t.Context(), []string{one, gone})
	require.ErrorContains(t, err, gone)
	assert.NotContains(t, err.Error(), deploytest.Password)

	h.refuse = errors.New("reload failed")
	require.ErrorContains(t, h.Pin(t.Context(), []string{one}), "reload failed")
	h.refuse = nil
	require.NoError(t, h.Pin(t.Context(), []string{one}), "the next try reads it")
	assert.NotContains(t, h.pinned(), two)

	h.refuse = errors.New("reload failed")
	require.ErrorContains(t, h.Pin(t.Context(), nil), "reload failed")
	h.refuse = nil
	require.NoError(t, h.Pin(t.Context(), nil))
	assert.Equal(t, "(none)", h.pinned())
	missing, err = h.missing(t.Context(), []string{one})
	require.NoError(t, err)
	assert.Empty(t, missing, "the kubelet removes it when it needs the room")
	before := h.reloads
	require.NoError(t, h.Pin(t.Context(), nil))
	assert.Equal(t, before, h.reloads)
}

func TestNodesWithoutCRIOSaySo(t *testing.T) {
	s := Store{Root: t.TempDir(), Log: report.NoLog()}
	require.ErrorContains(t, s.Pin(t.Context(), []string{"r.example.com/a@sha256:" + strings.Repeat("1", 64)}), "no CRI-O")
	require.NoError(t, s.Pin(t.Context(), nil))
}
