package firstboot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestTrustInTheBootstrapRegistryEndsWithoutAReboot(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	next := f.push(f.layered(f.hash(), deploytest.Entry{Name: "etc/later", Body: "x"}))

	final := `{"auths":{"registry.example.com":{"auth":"` + "ZmluYWw6czNjcmV0LWNhbmFyeQ==" + `"}}}`
	run := func(stdin string, argv ...string) (string, int) {
		var out strings.Builder
		code, err := f.node.Run(t.Context(), testnode.Command{Argv: append([]string{DaemonPath}, argv...), Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out})
		require.NoError(t, err)
		return out.String(), code
	}
	said, code := run(final, "end-trust", "--add-auth=-", f.registry.Addr)
	require.Zero(t, code, said)
	for _, path := range []string{MirrorPath, AuthPath, certsDir + "/" + f.registry.Addr} {
		assert.Contains(t, said, path)
	}
	assert.NotContains(t, said, "ZmluYWw6")
	auth := f.output("cat", AuthPath)
	assert.Contains(t, auth, "registry.example.com")
	assert.NotContains(t, auth, f.registry.Addr)
	assert.Equal(t, "600", f.output("stat", "-c", "%a", AuthPath))
	assert.NotContains(t, f.output("find", "/etc/containers"), f.registry.Addr)
	assert.Equal(t, 2, f.boots())
	said, code = run("", "stage", next)
	assert.Equal(t, 1, code, "nothing leads to the bootstrap registry any more")
	assert.Contains(t, said, "registry.invalid")
	said, code = run("", "end-trust", f.registry.Addr)
	assert.Zero(t, code)
	assert.Empty(t, said, "twice is once")
	require.NoError(t, f.node.Reboot(t.Context()))
	assert.Equal(t, f.image, f.record().Booted, "the node boots its image as before")
}

func TestNamesOfNetworkCardsArePersisted(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.config.PersistNICNames = true })
	f.put("/usr/bin/nmstatectl", 0o755, []byte("#!/bin/sh\necho \"$@\" >> /var/nmstatectl\nwhile [ $# -gt 1 ]; do [ \"$1\" = --kargs-out ] && echo ifname=ens4:00:11 > \"$2\"; shift; done\n"))
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	assert.Equal(t, f.image, r.Booted)
	assert.Equal(t, "persist-nic-names --root / --kargs-out "+StateDir+"/nic-kernel-arguments", f.output("cat", "/var/nmstatectl"))
	assert.Contains(t, f.output("cat", "/proc/cmdline"), "ifname=ens4:00:11")
	assert.Contains(t, f.output("cat", "/proc/cmdline"), "dayone.test=1")
}

func TestNodeSaysThatItsKernelIsOfAnotherType(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.config.PersistNICNames = true // without nmstatectl: said, and no obstacle
		f.served.Spec.KernelType = "64k-pages"
		f.served.Spec.OSImageURL = f.push(f.layered(f.hash()))
		f.served.Annotations = nil
	})
	f.start()
	r := f.waitDone()
	assert.Equal(t, f.image, r.Booted)
	assert.Contains(t, r.Warning, "not of the config's type 64k-pages")
	assert.Contains(t, f.log(), "not of the config's type")
	assert.Contains(t, f.log(), "this OS has no nmstatectl")
}

func TestAddAuthReachesEveryFileThatIsRead(t *testing.T) {
	root := t.TempDir()
	add := []byte(`{"auths":{"new":{"auth":"n"}}}`)
	changed, err := AddAuth(root, add)
	require.NoError(t, err)
	assert.Equal(t, []string{AuthPath}, changed, "made where there was none")
	changed, err = AddAuth(root, add)
	require.NoError(t, err)
	assert.Empty(t, changed, "twice is once")

	kubelet := filepath.Join(root, "var/lib/kubelet/config.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(kubelet), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/ostree"), 0o755))
	require.NoError(t, os.WriteFile(kubelet, []byte(`{"auths":{"old":{"auth":"o"}}}`), 0o644))
	link := filepath.Join(root, writableAuth[0])
	require.NoError(t, os.Symlink(kubelet, link))
	changed, err = AddAuth(root, add)
	require.NoError(t, err)
	assert.Equal(t, []string{writableAuth[0]}, changed)
	raw, err := os.ReadFile(kubelet)
	require.NoError(t, err)
	assert.JSONEq(t, `{"auths":{"old":{"auth":"o"},"new":{"auth":"n"}}}`, string(raw))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays")
	info, err = os.Stat(kubelet)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "secrets are nobody else's")
	_, err = AddAuth(root, []byte("s3cret-canary"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
}
