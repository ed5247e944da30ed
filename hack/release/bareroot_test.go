package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/codeblocks"
)

// enter runs a command in the root $ROOT: with mounts, processes and a network of its own, the release folder at
// /release and a base image at /base. The network has one address, which the sample names as the bootstrap host's.
const enter = `set -e
ip link set lo up
ip address add 192.168.77.1/32 dev lo
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t sysfs sysfs "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount --mkdir --bind -o ro "$RELEASE" "$ROOT/release"
mount --mkdir --bind -o ro "$BASE" "$ROOT/base"
exec chroot "$ROOT" sh -ec "$0"`

// bareRoot is a root file system with nothing but essential packages, a release and a base image.
type bareRoot struct{ dir, release, base string }

// run gives what a script prints that runs in the root, as enter says.
func (r bareRoot) run(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
		"sh", "-c", enter, script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "ROOT=" + r.dir, "RELEASE=" + r.release, "BASE=" + r.base,
		"HOME=/root"}
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	return string(said)
}

// served waits until the bootstrap serves nodes; it goes on until it is stopped.
const served = ` >/bootstrap.log 2>&1 &
timeout 300 sh -c 'until dayone status | grep -q "^done  *serve"; do
kill -0 '$!' || { cat /bootstrap.log; exit 1; }; sleep 1; done' || { cat /bootstrap.log; dayone status; exit 1; }
`

// day1 is what the README lets a new user do with the sample.
func day1(t *testing.T) string {
	t.Helper()
	blocks, err := codeblocks.Of("../../README.md")
	require.NoError(t, err)
	for _, b := range blocks {
		lines := b.Commands()
		if len(lines) == 0 || !strings.HasPrefix(lines[0], "dayone sample ") {
			continue
		}
		script := "cd /\ndayone version -o json\n"
		for _, line := range lines {
			line, _, _ = strings.Cut(line, "  #")
			line = strings.ReplaceAll(line, "oci:/srv/base", "oci:/base")
			if strings.HasPrefix(line, "dayone bootstrap ") {
				line += served
			}
			script += line + "\n"
		}
		require.Contains(t, script, served)
		return script + "kill $!\nwait $! || true"
	}
	require.Fail(t, "the README has no walk from the sample on")
	return ""
}

// ofThePage are the lines of the installation page's block that begins so.
func ofThePage(t *testing.T, begins string) []string {
	t.Helper()
	blocks, err := codeblocks.Of("../../docs/users/installing.md")
	require.NoError(t, err)
	for _, b := range blocks {
		if lines := b.Commands(); len(lines) > 0 && strings.HasPrefix(lines[0], begins) {
			return lines
		}
	}
	require.Fail(t, "the page has no such block", begins)
	return nil
}

// bareRoots installs the deb in a Debian and the rpm in a Fedora-like root that have nothing but essential packages:
// no Go, no checkout, no crun, no ostree, no systemd that runs.
func bareRoots(t *testing.T, out string) {
	base, err := baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	debian := bareRoot{dir: bareDebian(t), release: out, base: base}
	root, in := debian.dir, debian.run
	t.Run("air-gapped", func(t *testing.T) { airGapped(t, bareRoot{dir: bareDebian(t), release: out, base: base}) })
	t.Run("deb", func(t *testing.T) {
		in(t, "ln -s /release/*.deb .\n"+strings.ReplaceAll(strings.Join(ofThePage(t, "dpkg "), "\n"), "_amd64.",
			"_"+runtime.GOARCH+".")+"\nrm -r *.deb cluster")
		said := in(t, day1(t))
		assert.Contains(t, said, `"version": "`+version+`"`)
		assert.Regexp(t, `(?m)^done +build-master`, said)
		in(t, "dpkg -r dayone")
		assert.NoFileExists(t, filepath.Join(root, "usr/bin/dayone"))
	})
	// There are no packages of Fedora here: the root is Debian's that says it is Fedora, without dpkg's records. dnf and
	// rpm resolve, unpack into it, run the scripts there and verify what they wrote, as they would on Fedora.
	t.Run("rpm", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(filepath.Join(root, "var/lib/dpkg")))
		require.NoError(t, os.Remove(filepath.Join(root, "etc/os-release"))) // a link
		require.NoError(t, os.WriteFile(filepath.Join(root, "etc/os-release"), []byte(fedora), 0o644))
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		host := func(name string, args ...string) string {
			t.Helper()
			said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
			require.NoError(t, err, string(said))
			return string(said)
		}
		dnf := []string{"--assumeyes", "--installroot=" + root, "--releasever=42", "--setopt=reposdir=/nowhere",
			"--setopt=cachedir=" + t.TempDir()}
		host("dnf", append(dnf, "install", filepath.Join(out, "dayone-0.1.0-1."+machine+".rpm"))...)
		assert.Empty(t, host("rpm", "--root", root, "--verify", "dayone"), "files are as the package has them")
		assert.Contains(t, host("rpm", "--root", root, "--query", "--list", "dayone"),
			"/usr/lib/systemd/system/dayone-bootstrap.service")
		said := in(t, "rm -rf /cluster /var/lib/dayone\n"+day1(t))
		assert.Contains(t, said, `"version": "`+version+`"`)
		assert.Regexp(t, `(?m)^done +build-master`, said)
		host("dnf", append(dnf, "remove", "dayone")...)
		assert.NoFileExists(t, filepath.Join(root, "usr/bin/dayone"))
	})
}

// fedora is how that distribution names itself (os-release(5)).
const fedora = "NAME=\"Fedora Linux\"\nID=fedora\nVERSION_ID=42\nPRETTY_NAME=\"Fedora Linux 42\"\n"

// bareDebian is a root of Debian's essential packages, made once.
func bareDebian(t *testing.T) string {
	home, err := cache.Dir()
	require.NoError(t, err)
	kept, err := cache.Store{Dir: filepath.Join(home, "bareroot")}.Ensure(context.Background(), "bookworm",
		func(dir string) error {
			said, err := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase", "bookworm",
				filepath.Join(dir, "root.tar")).CombinedOutput()
			assert.NoError(t, err, string(said))
			return err
		})
	require.NoError(t, err)
	root := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "tar", "-x", "--numeric-owner", "-p", "-C", root, "-f",
		filepath.Join(kept, "root.tar")).CombinedOutput()
	require.NoError(t, err, string(said))
	return root
}
