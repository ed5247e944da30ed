package openshift_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
)

// asUnit starts a program under the lines of dayone-bootstrap.service: those that run, restart and notify it are left
// out.
const asUnit = `sed -E '/^(Requires|Wants|After|Type|NotifyAccess|ExecStart|Restart.*|WatchdogSec|State.*)=/d' \
	/etc/systemd/system/dayone-bootstrap.service >/run/systemd/system/probe.service
mkdir -p /run/systemd/system/probe.service.d
printf '[Service]\nType=oneshot\nRuntimeDirectory=\nExecStart=%s\nStandardOutput=truncate:/run/probe\n' "$1" \
	>/run/systemd/system/probe.service.d/run.conf
systemctl daemon-reload && systemctl start probe.service; cat /run/probe`

// inSandbox says what the unit's lines take, and what they leave to containers, which podman's defaults leave to them,
// too: programs of 32 bits, to trace one's own processes, and the kernel's checksums.
func (w *world) inSandbox() {
	const denied, noFamily = "EPERM", "EAFNOSUPPORT"
	for _, c := range []struct{ arch, packet, swapoff string }{
		{arch: "amd64", packet: noFamily, swapoff: denied},
		{arch: "386", packet: "EINVAL", swapoff: denied}, // systemd cannot filter the families of 32-bit x86
	} {
		free, bound := w.syscalls(c.arch)
		assert.Equal(w.t, answers("EINVAL", "ENOENT"), free, "%s: without the unit's lines", c.arch)
		assert.Equal(w.t, answers(c.packet, c.swapoff), bound, "%s: under the unit's lines", c.arch)
	}
}

// fetchesAgain says that podman and the script take the program out of its image under the lines of
// dayone-fetch.service.
func (w *world) fetchesAgain() {
	const program = "/usr/local/bin/dayone"
	out, err := w.sh("mv " + program + " /run/fetched && systemctl restart dayone-fetch; " +
		"journalctl -b -u dayone-fetch --no-pager; cmp /run/fetched " + program + " && rm /run/fetched")
	require.NoError(w.t, err, out)
	out, err = w.sh("systemctl show -p ActiveState -p Result -p RestrictRealtime -p LockPersonality dayone-fetch")
	require.NoError(w.t, err)
	for _, line := range []string{"ActiveState=active", "Result=success", "RestrictRealtime=yes", "LockPersonality=yes"} {
		assert.Contains(w.t, out, line)
	}
}

// answers are those of all system calls that are tried.
func answers(packet, swapoff string) string {
	return "modify_ldt OK\npersonality OK\nptrace ESRCH\nsocket-alg EINVAL\n" +
		"socket-packet " + packet + "\nswapoff " + swapoff
}

// syscalls tries system calls on the node, as a program without limits and as one of the unit.
func (w *world) syscalls(arch string) (free, bound string) {
	t := w.t
	const path = "lib/probe"
	built := filepath.Join(t.TempDir(), arch)
	require.NoError(t, program.Build(t.Context(), "", program.Options{Arch: arch,
		Package: "dayone.dev/dayone/hack/e2e/openshift/syscalls"}, built))
	disk := filepath.Join(w.node.Sysroot, "ostree/deploy", testnode.Stateroot, "var", path)
	out, err := exec.Command("cp", built, disk).CombinedOutput()
	require.NoError(t, err, string(out))
	defer func() { assert.NoError(t, os.Remove(disk)) }()
	free, err = w.sh("/var/" + path)
	require.NoError(t, err)
	bound, err = w.node.Output(t.Context(), "sh", "-c", asUnit, "sh", "/var/"+path)
	require.NoError(t, err)
	return strings.TrimSpace(free), strings.TrimSpace(bound)
}
