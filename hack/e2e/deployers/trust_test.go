package deployers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// adminsAuth is what an admin's config has in the same file; the image has it, too. The blanks are the admin's.
const adminsAuth = `{ "auths": {"quay.example.com": {"auth": "YWRtaW46b3RoZXI="}},` + "\n" +
	`  "credHelpers": {"ecr.example.com": "helper"} }` + "\n"

// agent runs the agent on the node and gives all it said.
func (f *fixture) agent(stdin string, argv ...string) (string, int) {
	f.t.Helper()
	var out strings.Builder
	code, err := f.node.Run(f.t.Context(), testnode.Command{Argv: append([]string{firstboot.DaemonPath}, argv...),
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out})
	require.NoError(f.t, err)
	return out.String(), code
}

func TestEndTrustWithoutReboot(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.served.Spec.OSImageURL = f.push(f.layered(deploytest.Entry{Name: strings.TrimPrefix(firstboot.AuthPath, "/"),
				Body: adminsAuth, Mode: 0o600}))
		})
		f.put(firstboot.AuthPath, 0o600, []byte(adminsAuth))
		f.start()
		f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))
		merged := f.output("cat", firstboot.AuthPath)
		assert.Contains(t, merged, f.registry.Addr)
		assert.Contains(t, merged, "quay.example.com", "added, not in place of what was there")
		assert.Contains(t, merged, "credHelpers")
		next := f.push(f.layered(deploytest.Entry{Name: "etc/later", Body: "x"}))

		said, code := f.agent("", "end-trust", f.registry.Addr)
		require.Zero(t, code, said)
		for _, path := range []string{firstboot.MirrorPath, firstboot.AuthPath, firstboot.PullAuthPath, caPath} {
			assert.Contains(t, said, path)
		}
		left, _ := f.run("grep -rl '" + f.registry.Addr + "' /etc /run/ostree /var/lib/kubelet /var/roothome 2>/dev/null")
		assert.Empty(t, left.Stdout, "nothing names the bootstrap registry any more")
		assert.NotContains(t, f.output("find", "/etc/containers"), f.registry.Addr)
		raw, _ := f.run("cat " + firstboot.AuthPath)
		assert.Equal(t, adminsAuth, raw.Stdout, "the admin's credentials, byte for byte")
		assert.NotContains(t, f.output("ostree", "admin", "config-diff"), "auth.json",
			"so that a later image may change them")
		assert.Equal(t, 2, f.boots())

		said, code = f.agent("", "stage", next)
		assert.Equal(t, 1, code, "nothing leads to the bootstrap registry")
		assert.Contains(t, said, "registry.invalid")
		final := `{"auths":{"registry.example.com":{"auth":"` + "ZmluYWw6czNjcmV0LWNhbmFyeQ==" + `"}}}`
		said, code = f.agent(final, "end-trust", "--add-auth=-", f.registry.Addr)
		assert.Zero(t, code, "twice is once")
		assert.Equal(t, firstboot.AuthPath, strings.TrimSpace(said))
		assert.NotContains(t, said, "ZmluYWw6")
		assert.Contains(t, f.output("cat", firstboot.AuthPath), "registry.example.com")
		assert.Contains(t, f.output("cat", firstboot.AuthPath), "quay.example.com")
		assert.Equal(t, "600", f.output("stat", "-c", "%a", firstboot.AuthPath))
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, f.image, f.status().Booted.Image.String(), "the node boots its image as before")
		assert.Equal(t, 3, f.boots())
	})
}

func TestNamesOfNetworkCardsArePersisted(t *testing.T) {
	need(t)
	t.Parallel()
	f := newFixture(t, deploy.KindRPMOSTree, []string{"rpm-ostree"}, func(f *fixture) { f.config.PersistNICNames = true })
	f.put("/usr/lib/os-release", 0o644, []byte("ID=rhcos\nPLATFORM_ID=\"platform:el9\"\n"))
	f.put("/usr/bin/nmstatectl", 0o755,
		[]byte("#!/bin/sh\necho \"$@\" >> /var/nmstatectl\n"+
			"while [ $# -gt 1 ]; do [ \"$1\" = --kargs-out ] && echo ifname=ens4:00:11 > \"$2\"; shift; done\n"))
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	assert.Equal(t, f.image, r.Booted)
	assert.Equal(t, "persist-nic-names --root / --kargs-out "+firstboot.StateDir+"/nic-kernel-arguments",
		f.output("cat", "/var/nmstatectl"))
	assert.Contains(t, f.output("cat", "/proc/cmdline"), "ifname=ens4:00:11")
	assert.Contains(t, f.output("cat", "/proc/cmdline"), kernelArgument)
}

func TestFirstBootWithABaseImage(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.config.PersistNICNames = true
			f.served.Annotations = nil
			f.served.Spec.KernelType = "64k-pages"
			f.served.Spec.OSImageURL = f.push(without(firstboot.LabelConfigHash)(f))
		})
		// without nmstatectl: said, and no obstacle
		f.put("/usr/lib/os-release", 0o644, []byte("ID=rhcos\nPLATFORM_ID=platform:el8\n"))
		f.start()
		r := f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))
		assert.Equal(t, f.image, r.Booted)
		assert.NotContains(t, f.output("cat", "/etc/machine-config-daemon/node-annotations.json"), "Image",
			"it is not layered")
		assert.NotContains(t, f.output("ls", "/etc/machine-config-daemon"), "currentimage")
		assert.Contains(t, r.Warning, "not of the config's type 64k-pages",
			"a stock image's kernel may still be exchanged by others")
		f.says("this OS has no nmstatectl")
	})
}
