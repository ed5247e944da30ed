package userspace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/softreboot/userspace"
)

const (
	bootedTree = "ostree/deploy/os/deploy/" + deploytest.CommitA + ".0"
	stagedTree = "ostree/deploy/os/deploy/" + deploytest.CommitB + ".0"
	target     = "usr/lib/systemd/system/soft-reboot.target"
	mounts     = "27 1 0:40 / / ro - overlay composefs ro\n30 27 8:1 /" + bootedTree + "/etc /etc rw - xfs /dev/sda4 rw\n"
)

// host is a node's "/" with a booted and a staged deployment, as far as is read of it.
type host struct {
	*testing.T
	root   string
	script deploytest.Script
}

func newHost(t *testing.T) *host {
	h := &host{T: t, root: t.TempDir(), script: deploytest.Script{Answers: map[string]string{
		"ostree --version":    "libostree:\n Version: '2026.4'\n Git: abc\n",
		"systemctl --version": "systemd 262 (262.1-1)\n+PAM\n",
		"systemctl show --value --property=SoftRebootsCount": "1\n"}}}
	h.write("proc/1/mountinfo", mounts)
	h.write("proc/uptime", "1000.25 1.00\n")
	for _, tree := range []string{"", bootedTree, stagedTree} {
		h.write(filepath.Join(tree, target), "[Unit]\n")
	}
	for _, tree := range []string{bootedTree, stagedTree} {
		h.write(tree+"/usr/lib/modules/6.1/vmlinuz", "kernel")
		h.write(tree+"/usr/lib/modules/6.1/kernel/a.ko.xz", "module")
		h.write(tree+"/usr/etc/sysctl.d/10.conf", "a=1")
		h.write(tree+"/usr/etc/selinux/targeted/policy/policy.33", "policy")
	}
	h.write("etc/sysctl.d/10.conf", "a=1")
	h.write("etc/selinux/targeted/policy/policy.33", "policy")
	require.NoError(t, os.Symlink(filepath.Join(h.root, "etc"), filepath.Join(h.root, bootedTree, "etc")))
	return h
}

func (h *host) write(name, content string) {
	h.Helper()
	path := filepath.Join(h.root, name)
	require.NoError(h, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h, os.RemoveAll(path))
	require.NoError(h, os.WriteFile(path, []byte(content), 0o644))
}

// place is a directory's device and inode as ostree writes them.
func (h *host) place(tree string) string {
	var st syscall.Stat_t
	require.NoError(h, syscall.Stat(filepath.Join(h.root, tree), &st))
	return string(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, st.Dev), st.Ino))
}

func (h *host) node() userspace.Node { return userspace.Node{Root: h.root, Run: h.script.Run} }

func (h *host) status() deploy.Status {
	image := func(name string) deploy.Image {
		i, err := deploy.ParseImage(name)
		require.NoError(h, err)
		return i
	}
	return deploy.Status{Kind: deploy.KindOSTree,
		Booted: &deploy.Deployment{ID: "os/" + deploytest.CommitA + ".0", Image: image(deploytest.OtherImage)},
		Staged: &deploy.Deployment{ID: "os/" + deploytest.CommitB + ".0", Image: image(deploytest.WantImage)}}
}

func TestFacts(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*host)
		changes []string
		want    string
	}{
		{name: "a config that the kernel does not read",
			change: func(h *host) { h.write(stagedTree+"/usr/etc/app.conf", "x") }, want: "soft"},
		{name: "another kernel", change: func(h *host) { h.write(stagedTree+"/usr/lib/modules/6.1/vmlinuz", "KERNEL") },
			want: "hard: the deployments differ in the kernel or its initramfs"},
		{name: "one kernel more", change: func(h *host) { h.write(stagedTree+"/usr/lib/modules/6.2/vmlinuz", "kernel") },
			want: "hard: the deployments differ in the kernel or its initramfs"},
		{name: "a module less",
			change: func(h *host) {
				require.NoError(h, os.Remove(filepath.Join(h.root, stagedTree, "usr/lib/modules/6.1/kernel/a.ko.xz")))
			}, want: "hard: the deployments differ in the kernel module a.ko.xz"},
		{name: "a module more",
			change: func(h *host) { h.write(stagedTree+"/usr/lib/modules/6.1/extra/b.ko", "b") }, want: "soft"},
		{name: "SELinux", change: func(h *host) { h.write(stagedTree+"/usr/etc/selinux/targeted/policy/policy.33", "other") },
			want: "hard: the deployments differ in the SELinux policy"},
		{name: "sysctl", change: func(h *host) { h.write(stagedTree+"/usr/etc/sysctl.d/10.conf", "a=2") },
			want: "hard: the deployments differ in sysctl settings"},
		{name: "sysctl that is the node's own",
			change: func(h *host) {
				h.write(stagedTree+"/usr/etc/sysctl.d/10.conf", "a=2")
				h.write("etc/sysctl.d/10.conf", "a=3")
			}, want: "soft"},
		{name: "modules to load, as Ignition wrote them",
			change: func(h *host) {
				h.write(stagedTree+"/usr/etc/modules-load.d/x.conf", "x")
				h.write("etc/modules-load.d/x.conf", "x")
			}, want: "soft"},
		{name: "modules to load that come with the image",
			change: func(h *host) { h.write(stagedTree+"/usr/etc/modules-load.d/x.conf", "x") },
			want:   "hard: the deployments differ in the modules to load"},
		{name: "udev rules gone", change: func(h *host) { h.write(bootedTree+"/usr/lib/udev/rules.d/1.rules", "x") },
			want: "hard: the deployments differ in udev rules"},
		{name: "FIPS", change: func(h *host) { h.write(stagedTree+"/usr/etc/crypto-policies/config", "FIPS") },
			want: "hard: the deployments differ in FIPS"},
		{name: "kernel arguments", changes: []string{"kernelArguments"},
			want: "hard: the deployments differ in kernelArguments"},
		{name: "prepare-root.conf in the image",
			change: func(h *host) { h.write(stagedTree+"/usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled=no\n") },
			want:   "hard: the deployments differ in prepare-root.conf"},
		{name: "prepare-root.conf under way", change: func(h *host) { h.write("etc/ostree/prepare-root.conf", "x") },
			want: "hard: the deployments differ in a local /etc/ostree/prepare-root.conf"},
		{name: "masked here",
			change: func(h *host) {
				require.NoError(h, os.MkdirAll(filepath.Join(h.root, "etc/systemd/system"), 0o755))
				require.NoError(h, os.Symlink("/dev/null", filepath.Join(h.root, "etc/systemd/system/soft-reboot.target")))
			}, want: "hard: soft-reboot.target is masked in the running system"},
		{name: "masked by an empty file in the image",
			change: func(h *host) { h.write(stagedTree+"/usr/etc/systemd/system/soft-reboot.target", "") },
			want:   "hard: soft-reboot.target is masked in the staged deployment"},
		{name: "removed in the image",
			change: func(h *host) { require.NoError(h, os.Remove(filepath.Join(h.root, stagedTree, target))) },
			want:   "hard: soft-reboot.target is missing in the staged deployment"},
		{name: "no composefs",
			change: func(h *host) { h.write("proc/1/mountinfo", "27 1 8:1 / / rw - xfs /dev/sda4 rw\n") },
			want:   "hard: the root file system is not composefs"},
		{name: "ostree names another deployment",
			change: func(h *host) { require.NoError(h, os.Remove(filepath.Join(h.root, bootedTree, "etc"))) },
			want:   "hard: / is not the deployment os/" + deploytest.CommitA + ".0 that is called booted"},
		{name: "second initramfs",
			change: func(h *host) { h.write("boot/loader/entries/ostree-2.conf", "title x\ninitrd /a /b\n") },
			want:   "hard: the node boots with a second initramfs"},
		{name: "locked", change: func(h *host) { h.write("run/ostree/staged-deployment-locked", "") },
			want: "hard: the staged deployment is locked (downloaded only)"},
		{name: "often", change: func(h *host) {
			h.script.Answers["systemctl show --value --property=SoftRebootsCount"] = "3\n"
		}, want: "hard: 3 soft reboots since the hardware booted are enough"},
		{name: "no systemd", change: func(h *host) {
			delete(h.script.Answers, "systemctl --version")
			delete(h.script.Answers, "systemctl show --value --property=SoftRebootsCount")
		}, want: "hard: the node's OS has no systemd"},
		{name: "ostree is old", change: func(h *host) { h.script.Answers["ostree --version"] = "Version: '2022.7'" },
			want: "hard: ostree 2022.7 is older than 2026.1"},
		{name: "failed before", change: func(h *host) {
			require.NoError(h, h.node().NoteFailure(h.status().Staged.Image, "a process runs on"))
		}, want: "hard: an earlier soft reboot into this image failed: a process runs on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if c.change != nil {
				c.change(h)
			}
			facts, err := h.node().Facts(t.Context(), softreboot.SoftIfPossible, h.status(), c.changes)
			require.NoError(t, err)
			assert.Equal(t, c.want, facts.Decide().String())
		})
	}
}

// deployer has a status and prepares; the real ones are tested on nodes.
type deployer struct {
	deploy.Deployer
	status  deploy.Status
	refuse  error
	prepare func()
	calls   []string
}

func (d *deployer) Status(context.Context) (deploy.Status, error) { return d.status, nil }

func (d *deployer) PrepareSoft(context.Context) error {
	d.calls = append(d.calls, "prepare")
	if d.prepare != nil {
		d.prepare()
	}
	return d.refuse
}

func (d *deployer) SoftReboot(context.Context) error { return nil }

func (d *deployer) CancelSoft(context.Context) error {
	d.calls = append(d.calls, "cancel")
	return nil
}

func TestPrepare(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*host, *deployer)
		err   string
		calls []string
	}{
		{name: "prepared", calls: []string{"prepare"}},
		{name: "the difference stops it before",
			setup: func(h *host, _ *deployer) { h.write(stagedTree+"/usr/etc/fstab", "x") }, err: "fstab"},
		{name: "ostree refuses", setup: func(_ *host, d *deployer) { d.refuse = errors.New("different kernel state") },
			err: "different kernel state", calls: []string{"prepare"}},
		{name: "somebody else's is staged", setup: func(h *host, d *deployer) { d.status.Staged = h.status().Booted },
			err: "is not what is staged"},
		{name: "somebody stages another one meanwhile", setup: func(h *host, d *deployer) {
			d.prepare = func() { d.status.Staged = h.status().Booted }
		}, err: "is not what is staged", calls: []string{"prepare", "cancel"}},
		{name: "prepare-root.conf changes meanwhile", setup: func(h *host, d *deployer) {
			d.prepare = func() { h.write("etc/ostree/prepare-root.conf", "x") }
		}, err: "prepare-root.conf", calls: []string{"prepare", "cancel"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			d := &deployer{status: h.status()}
			if c.setup != nil {
				c.setup(h, d)
			}
			s, err := h.node().Prepare(t.Context(), d, h.status().Staged.Image, softreboot.SoftIfPossible, nil)
			assert.Equal(t, c.calls, d.calls)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, userspace.Switch{Asked: 100025, Left: h.status().Booted.ID}, s)
		})
	}
	_, err := newHost(t).node().Prepare(t.Context(), nil, deploy.Image{}, softreboot.SoftRequired, nil)
	assert.ErrorContains(t, err, "knows no soft reboot")
}

func TestCheck(t *testing.T) {
	stat := func(pid, name, flags, start string) string {
		return pid + " (" + name + ") S 1 1 1 0 -1 " + flags + " 1 2 3 4 5 6 7 8 20 0 1 0 " + start + " 1 1\n"
	}
	left := "os/" + deploytest.CommitB + ".0"
	for _, c := range []struct {
		name   string
		change func(*host)
		err    string
	}{
		{name: "clean", change: func(h *host) {
			h.write("proc/1/stat", stat("1", "systemd", "4194560", "5"))
			h.write("proc/7/stat", stat("7", "kworker) S 1 (", "2129984", "6"))
			h.write("proc/90/stat", stat("90", "new", "4194560", "100100"))
		}},
		{name: "survivor", change: func(h *host) { h.write("proc/80/stat", stat("80", "old shell", "4194560", "500")) },
			err: "process 80 (old shell) of the userspace before runs on"},
		{name: "mount of what was left",
			change: func(h *host) {
				h.write("proc/1/mountinfo", mounts+"99 27 8:1 /"+stagedTree+"/var /mnt rw - xfs /dev/sda4 rw\n")
			}, err: "is still mounted at /mnt"},
		{name: "not what is called booted",
			change: func(h *host) { require.NoError(h, os.Remove(filepath.Join(h.root, bootedTree, "etc"))) },
			err:    "/ is not the deployment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.change(h)
			err := h.node().Check(userspace.Switch{Asked: 100000, Left: left}, h.status().Booted)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
}

func TestMend(t *testing.T) {
	const nextBooted, start = "run/ostree/nextroot-booted", "systemctl start ostree-boot-complete.service"
	const restart = "systemctl restart ostree-boot-complete.service"
	note := func(h *host, tree string) { h.write(nextBooted, "x"+h.place(tree)+"y") }
	for _, c := range []struct {
		name   string
		change func(*host)
		calls  []string
		err    string
		gone   bool
	}{
		{name: "withdrawn without ostree", change: func(h *host) { note(h, stagedTree) }, gone: true},
		{name: "nobody can tell", change: func(h *host) {
			note(h, stagedTree)
			require.NoError(h, os.Remove(filepath.Join(h.root, bootedTree, "etc")))
		}, calls: []string{start, restart}, err: "left /run/ostree/nextroot-booted"},
		{name: "no soft reboot", change: func(*host) {}},
		{name: "prepared", change: func(h *host) {
			h.write(nextBooted, "")
			h.write("proc/1/mountinfo", mounts+"99 27 0:41 / /run/nextroot ro - overlay composefs ro\n")
		}},
		{name: "ostree names the one before", change: func(h *host) { note(h, bootedTree) },
			calls: []string{start, restart},
			err:   "ostree-boot-complete.service left /run/ostree/nextroot-booted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.change(h)
			err := h.node().Mend(t.Context())
			assert.Equal(t, c.calls, h.script.Calls)
			if c.gone {
				assert.NoFileExists(t, filepath.Join(h.root, nextBooted))
			}
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
	h := newHost(t)
	note(h, bootedTree)
	var asked []string
	mended := userspace.Node{Root: h.root, Run: func(_ context.Context, _ string, args ...string) ([]byte, error) {
		asked = append(asked, args[0])
		return nil, os.Remove(filepath.Join(h.root, nextBooted))
	}}
	assert.NoError(t, mended.Mend(t.Context()))
	assert.Equal(t, []string{"start"}, asked, "a service that is starting is not killed")
}

func TestFailuresAreBounded(t *testing.T) {
	h := newHost(t)
	for i := range 40 {
		image, err := deploy.ParseImage(fmt.Sprintf("r.example.com/os@sha256:%064d", i))
		require.NoError(t, err)
		require.NoError(t, h.node().NoteFailure(image, "x"))
		require.NoError(t, h.node().NoteFailure(image, "y"), "once more is no other one")
	}
	raw, err := os.ReadFile(filepath.Join(h.root, "var/lib/dayone/soft-reboot-failures.json"))
	require.NoError(t, err)
	assert.Equal(t, 16, strings.Count(string(raw), `"why"`))
	h.write("var/lib/dayone/soft-reboot-failures.json", "{spoiled")
	facts, err := h.node().Facts(t.Context(), softreboot.SoftIfPossible, h.status(), nil)
	require.NoError(t, err)
	assert.Empty(t, facts.Failed)
}
