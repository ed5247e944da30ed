package baseimage_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
)

// need skips, or fails in CI, when the machine lacks what a test wants.
func need(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("makes base images: left out with -short")
	}
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing: %s", strings.Join(missing, ", "))
	}
	t.Skipf("missing: %s (hack/setup/setup.sh installs programs)", strings.Join(missing, ", "))
}

type inspected struct {
	Digest string
	Labels map[string]string
	Layers []string
}

func inspect(t *testing.T, layout string) inspected {
	t.Helper()
	out, err := exec.Command("skopeo", "inspect", "oci:"+layout+":latest").Output()
	require.NoError(t, err)
	var i inspected
	require.NoError(t, json.Unmarshal(out, &i))
	return i
}

// unpack lays an image's layers over each other as a container engine would.
func unpack(t *testing.T, layout string) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range inspect(t, layout).Layers {
		out, err := exec.Command("tar", "-C", root, "--numeric-owner", "-xpzf",
			filepath.Join(layout, "blobs/sha256", strings.TrimPrefix(d, "sha256:"))).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return root
}

func TestTinyIsABootableOSTreeImage(t *testing.T) {
	need(t, "ostree", "busybox", "skopeo", "ldd")
	path, err := baseimage.Ensure(context.Background(), baseimage.Tiny, "")
	require.NoError(t, err)

	got := inspect(t, path)
	digest, err := baseimage.Digest(path)
	require.NoError(t, err)
	assert.Equal(t, got.Digest, digest.String())
	assert.Len(t, got.Layers, 3)
	assert.Equal(t, "true", got.Labels["ostree.bootable"])
	assert.Equal(t, "1", got.Labels["containers.bootc"])
	assert.Equal(t, baseimage.KernelVersion, got.Labels["ostree.linux"])

	root := unpack(t, path)
	assertBootableTree(t, root)
	out, err := exec.Command("chroot", root, "/bin/sh", "-c",
		"ostree --version && /usr/bin/ip -V && grep -q ID=dayone-tiny /etc/os-release && id -u").CombinedOutput()
	assert.NoError(t, err, "a RUN instruction needs a shell: %s", out)
}

func assertBootableTree(t *testing.T, root string) {
	t.Helper()
	for _, f := range []string{"usr/lib/ostree/ostree-prepare-root", "usr/lib/modules/" + baseimage.KernelVersion +
		"/vmlinuz", "usr/lib/os-release", "etc/containers/policy.json"} {
		assert.FileExists(t, filepath.Join(root, f))
	}
	assert.NoDirExists(t, filepath.Join(root, "usr/etc"), "OCI images have /etc; ostree's importer makes /usr/etc of it")
	for link, want := range map[string]string{"ostree": "sysroot/ostree", "home": "var/home", "root": "var/roothome",
		"usr/local": "../var/usrlocal"} {
		target, err := os.Readlink(filepath.Join(root, link))
		assert.NoError(t, err)
		assert.Equal(t, want, target)
	}
	for _, d := range []string{"boot", "dev", "proc", "run", "sys", "sysroot", "var"} {
		entries, err := os.ReadDir(filepath.Join(root, d))
		assert.NoError(t, err)
		assert.Empty(t, entries, "/%s ships empty", d)
	}
	tables, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libicudata.so.*"))
	assert.NoError(t, err)
	for _, file := range tables {
		st, err := os.Stat(file)
		assert.NoError(t, err)
		assert.Less(t, st.Size(), int64(64<<10), "ICU's tables would be half of the image")
	}
	id, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
	assert.NoError(t, err)
	assert.Equal(t, "uninitialized\n", string(id), "else systemd does not see a first boot")
}

func TestShellIsAnImageToBuildOn(t *testing.T) {
	need(t, "busybox", "skopeo")
	path, err := baseimage.Ensure(context.Background(), baseimage.Shell, "")
	require.NoError(t, err)
	got := inspect(t, path)
	assert.Len(t, got.Layers, 3)
	assert.Equal(t, "true", got.Labels["ostree.bootable"])
	root := unpack(t, path)
	assert.NoFileExists(t, filepath.Join(root, "usr/bin/ostree"))
	out, err := exec.Command("chroot", root, "/bin/sh", "-c", "grep -q ID=dayone-tiny /etc/os-release && id -u").
		CombinedOutput()
	assert.NoError(t, err, "a RUN instruction needs a shell: %s", out)
}

func TestImageIsReproducible(t *testing.T) {
	need(t, "ostree", "busybox", "ldd")
	first, err := baseimage.Ensure(context.Background(), baseimage.Tiny, "")
	require.NoError(t, err)
	second, err := baseimage.Ensure(context.Background(), baseimage.Tiny, t.TempDir())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	a, err := os.ReadFile(filepath.Join(first, "index.json"))
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(second, "index.json"))
	require.NoError(t, err)
	assert.Equal(t, string(a), string(b))
}

func TestEnsureConcurrently(t *testing.T) {
	need(t, "ostree", "busybox", "ldd")
	cache := t.TempDir()
	known, err := baseimage.Ensure(context.Background(), baseimage.Tiny, "")
	require.NoError(t, err)
	left := filepath.Join(cache, "baseimage", filepath.Base(known)+".tmp-dead")
	require.NoError(t, os.MkdirAll(left, 0o755))

	var wg sync.WaitGroup
	paths, errs := make([]string, 4), make([]error, 4)
	for i := range paths {
		wg.Go(func() { paths[i], errs[i] = baseimage.Ensure(context.Background(), baseimage.Tiny, cache) })
	}
	wg.Wait()
	for i := range paths {
		assert.NoError(t, errs[i])
		assert.Equal(t, paths[0], paths[i])
	}
	entries, err := os.ReadDir(filepath.Join(cache, "baseimage"))
	require.NoError(t, err)
	assert.Len(t, entries, 2, "the image and its lock")
}

func TestUnknownKindIsRefused(t *testing.T) {
	_, err := baseimage.Ensure(context.Background(), "huge", t.TempDir())
	assert.ErrorContains(t, err, `unknown kind "huge" (want tiny, shell, debian, forky, machine or forky-machine)`)
}

func TestDebianImage(t *testing.T) {
	need(t, "mmdebstrap", "skopeo")
	path, err := baseimage.Ensure(context.Background(), baseimage.Debian, "")
	require.NoError(t, err)
	assert.Len(t, inspect(t, path).Layers, 3)
	root := unpack(t, path)
	assertBootableTree(t, root)
	out, err := exec.Command("chroot", root, "/bin/sh", "-c",
		"ostree --version && systemctl --version && test -d /etc/systemd/system/multi-user.target.wants").CombinedOutput()
	assert.NoError(t, err, string(out))
	assert.NoDirExists(t, filepath.Join(root, "usr/share/zoneinfo"), "no program of a node reads it")
	perl, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libperl*"))
	assert.NoError(t, err)
	assert.Empty(t, perl)
	assert.NoFileExists(t, filepath.Join(path, "scratch", "debian.tar"))
}

// A node soft-reboots only where all of this holds.
func TestForkyCanSoftReboot(t *testing.T) {
	need(t, "mmdebstrap", "skopeo")
	path, err := baseimage.Ensure(context.Background(), baseimage.Forky, "")
	require.NoError(t, err)
	root := unpack(t, path)
	assertBootableTree(t, root)
	packages, err := os.ReadFile(filepath.Join(root, "usr/share/dayone/packages"))
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^ostree 20(2[6-9]|[3-9]\d)\.\d`, string(packages))
	assert.Regexp(t, `(?m)^systemd 2[5-9]\d`, string(packages))
	for _, f := range []string{"usr/lib/systemd/system/soft-reboot.target", "usr/lib/ostree/prepare-root.conf"} {
		assert.FileExists(t, filepath.Join(root, f))
	}
	out, err := exec.Command("chroot", root, "ostree", "--version").CombinedOutput()
	assert.NoError(t, err, string(out))
	assert.Contains(t, string(out), "- composefs\n")
}
