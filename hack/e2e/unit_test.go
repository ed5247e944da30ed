package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets"
)

// unitOfThePage are the lines with which the page makes systemd keep the bootstrap.
func unitOfThePage(t *testing.T) []string {
	t.Helper()
	blocks, err := codeblocks.Of("../../docs/users/day1-standalone.md")
	require.NoError(t, err)
	at := slices.IndexFunc(blocks, func(b codeblocks.Block) bool { return strings.Contains(b.Text, "--print-unit") })
	require.GreaterOrEqual(t, at, 0)
	return blocks[at].Commands()
}

// TestPrintedUnitRuns starts the unit that dayone bootstrap prints on a host with systemd: it has started when nodes
// may come, it goes on after a kill, it ends in order, and a refused directory is not tried again.
func TestPrintedUnitRuns(t *testing.T) {
	options(t)
	debian, err := baseimage.Ensure(t.Context(), baseimage.Debian, "")
	require.NoError(t, err)
	tiny, err := baseimage.Ensure(t.Context(), baseimage.Tiny, "")
	require.NoError(t, err)
	lab, err := testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Close(context.Background())) })
	host, err := lab.NewNode(t.Context(), "boot0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: debian}})
	require.NoError(t, err)

	// On its disk: the programs, a base image, an install directory.
	disk := filepath.Join(host.Sysroot, "ostree/deploy", testnode.Stateroot, "var")
	require.NoError(t, os.CopyFS(filepath.Join(disk, "usrlocal/bin"), os.DirFS(binDir)))
	require.NoError(t, os.CopyFS(filepath.Join(disk, "srv/base"), os.DirFS(tiny)))
	dir := filepath.Join(disk, "my clusters/cluster")
	require.NoError(t, assets.WriteSample(dir))
	file := filepath.Join(dir, "install-config.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "host: 192.168.77.1\n", "host: "+host.Addr.String()+"\n", 1)
	require.NotEqual(t, string(raw), text)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	require.NoError(t, host.Start(t.Context()))
	require.NoError(t, host.WaitReady(t.Context()))

	output := func(command string) string {
		t.Helper()
		out, err := host.Output(t.Context(), "sh", "-c", "cd '/var/my clusters' && "+command)
		require.NoError(t, err, command)
		return strings.TrimSpace(out)
	}
	const show = "systemctl show dayone-bootstrap.service --property=ActiveState,SubState,Result,NRestarts --value | xargs"
	output("dayone prepare --dir cluster && dayone manifests --dir cluster")
	const log = " || { journalctl -u dayone-bootstrap.service -o cat >&2; false; }"
	for _, line := range unitOfThePage(t) {
		output(line + log)
	}
	assert.Equal(t, "success 0 active running", output(show))

	// The start is over: a master boots from the pointer config that the program has printed.
	pointer := output("cat \"$(journalctl -u dayone-bootstrap.service -o cat | " +
		`sed -n 's|^master  *\(/[^ ]*\)  *https://.*|\1|p')"`)
	master, err := lab.NewNode(t.Context(), "m0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: tiny,
		Reference: "registry.example.com/ocp/base-os"}})
	require.NoError(t, err)
	require.NoError(t, master.Ignite(t.Context(), []byte(pointer)))
	require.NoError(t, master.Start(t.Context()))
	require.NoError(t, master.WaitBoot(t.Context(), 2))
	booted, err := e2e.BootedDigest(t.Context(), master)
	require.NoError(t, err)
	assert.Contains(t, output("dayone registry ls --root /var/lib/dayone/registry"), booted)

	output("systemctl kill --signal=KILL --kill-whom=main dayone-bootstrap.service && " +
		"until systemctl is-active dayone-bootstrap.service | grep -qx activating; do sleep 0.1; done")
	assert.Equal(t, "signal 0 activating auto-restart", output(show))
	output("systemctl start dayone-bootstrap.service" + log) // sooner than systemd would
	assert.Equal(t, "active", output("systemctl is-active dayone-bootstrap.service"))
	output("systemctl stop dayone-bootstrap.service")
	// systemd counts that start, and an enabled unit keeps its count when it has stopped.
	assert.Equal(t, "success 1 inactive dead", output(show))

	output("rm -r cluster")
	refused, err := host.Exec(t.Context(), "systemctl", "start", "dayone-bootstrap.service")
	require.NoError(t, err)
	assert.NotZero(t, refused.ExitCode)
	assert.Equal(t, "exit-code 0 failed failed", output(show))
}
