package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/e2e"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets"
)

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
	require.NoError(t, os.CopyFS(filepath.Join(disk, "base"), os.DirFS(tiny)))
	dir := filepath.Join(disk, "install/my cluster")
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
		out, err := host.Output(t.Context(), "sh", "-c", "cd /var/install && "+command)
		require.NoError(t, err, command)
		return strings.TrimSpace(out)
	}
	const show = "systemctl show dayone.service --property=ActiveState,SubState,Result,NRestarts --value | xargs"
	const unit = ">/etc/systemd/system/dayone.service && systemctl daemon-reload"
	output("dayone prepare --dir 'my cluster' && dayone manifests --dir 'my cluster'")
	output("dayone bootstrap --dir 'my cluster' --base oci:/var/base --print-unit " + unit)
	start := "systemctl start dayone.service || { journalctl -u dayone.service -o cat >&2; false; }"
	output(start)
	assert.Equal(t, "success 0 active running", output(show))

	// The start is over: a master boots from the pointer config that the program has printed.
	pointer := output(`cat "$(journalctl -u dayone.service -o cat | sed -n 's|^master  *\(/[^ ]*\)  *https://.*|\1|p')"`)
	master, err := lab.NewNode(t.Context(), "m0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: tiny,
		Reference: "registry.example.com/ocp/base-os"}})
	require.NoError(t, err)
	require.NoError(t, master.Ignite(t.Context(), []byte(pointer)))
	require.NoError(t, master.Start(t.Context()))
	require.NoError(t, master.WaitBoot(t.Context(), 2))
	booted, err := e2e.BootedDigest(t.Context(), master)
	require.NoError(t, err)
	assert.Contains(t, output("dayone registry ls --root /var/lib/dayone/registry"), booted)

	output("systemctl kill --signal=KILL --kill-whom=main dayone.service && " +
		"until systemctl is-active dayone.service | grep -qx activating; do sleep 0.1; done")
	assert.Equal(t, "signal 0 activating auto-restart", output(show))
	output(start) // sooner than systemd would
	assert.Equal(t, "active", output("systemctl is-active dayone.service"))
	output("systemctl stop dayone.service")
	assert.Equal(t, "success 0 inactive dead", output(show))

	output("rm -r 'my cluster'")
	refused, err := host.Exec(t.Context(), "systemctl", "start", "dayone.service")
	require.NoError(t, err)
	assert.NotZero(t, refused.ExitCode)
	assert.Equal(t, "exit-code 0 failed failed", output(show))
}
