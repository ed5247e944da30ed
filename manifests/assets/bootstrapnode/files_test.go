package bootstrapnode_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests/assets/bootstrapnode"
)

// exposure is what systemd-analyze may say at most, of 10. The builder mounts, chroots and runs containers of other
// people's: it cannot be low.
var exposure = map[string]float64{bootstrapnode.GateUnit: 2.5, bootstrapnode.FetchUnit: 7.2,
	bootstrapnode.BootstrapUnit: 7.2}

// tree is a root directory with the units and what they name.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	put := func(path, text string, mode os.FileMode) {
		full := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), mode))
	}
	for unit := range exposure {
		put("/etc/systemd/system/"+unit, bootstrapnode.Unit(unit), 0o644)
	}
	for _, other := range []string{"kubelet.service", "release-image.service", "network-online.target",
		bootstrapnode.HeldUnit} {
		text := "[Unit]\nDescription=" + other + "\n"
		if filepath.Ext(other) == ".service" {
			text += "[Service]\nExecStart=/usr/bin/true\n"
		}
		put("/etc/systemd/system/"+other, text, 0o644)
	}
	put("/etc/systemd/system/"+bootstrapnode.HeldUnit+".d/"+bootstrapnode.HoldDropIn, bootstrapnode.Hold(), 0o644)
	for _, target := range []string{"sysinit.target", "basic.target", "shutdown.target", "multi-user.target", "-.slice",
		"system.slice"} {
		put("/usr/lib/systemd/system/"+target, "[Unit]\nDescription="+target+"\n", 0o644)
	}
	for _, program := range []string{bootstrapnode.ProgramPath, bootstrapnode.FetchPath, "/usr/sbin/nft",
		"/usr/bin/true"} {
		put(program, "#!/bin/sh\n", 0o755)
	}
	put(bootstrapnode.ProgramEnvPath, "DAYONE_IMAGE=x\n", 0o644)
	return root
}

func TestUnitsVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		require.Empty(t, os.Getenv("CI"), "systemd-analyze is missing")
		t.Skip("needs systemd-analyze")
	}
	root := tree(t)
	for _, unit := range []string{bootstrapnode.GateUnit, bootstrapnode.FetchUnit, bootstrapnode.BootstrapUnit,
		bootstrapnode.HeldUnit} {
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--root="+root, unit).CombinedOutput()
		assert.NoError(t, err, unit)
		assert.Empty(t, string(out), unit)
	}
}

var overall = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

func TestUnitsExposeNoMoreThanTheyNeed(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		require.Empty(t, os.Getenv("CI"), "systemd-analyze is missing")
		t.Skip("needs systemd-analyze")
	}
	root := tree(t)
	for unit, limit := range exposure {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--root="+root, unit).
			CombinedOutput()
		require.NoError(t, err, "%s: %s", unit, out)
		found := overall.FindSubmatch(out)
		require.NotNil(t, found, "%s: %s", unit, out)
		got, err := strconv.ParseFloat(string(found[1]), 64)
		require.NoError(t, err)
		t.Logf("%s: %.1f", unit, got)
		assert.LessOrEqual(t, got, limit, unit)
	}
}

func TestScriptsAreShell(t *testing.T) {
	for name, script := range map[string][]byte{"fetch": bootstrapnode.FetchScript(), "carry": bootstrapnode.CarryScript(),
		"disk": bootstrapnode.DiskInstaller(), "agent's disk": bootstrapnode.AgentDisk(),
		"agent's progress": bootstrapnode.AgentProgress()} {
		file := filepath.Join(t.TempDir(), "script.sh")
		require.NoError(t, os.WriteFile(file, script, 0o755))
		out, err := exec.Command("bash", "-n", file).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

// TestUnitsBeginWithTheBootstrap: on a live image that all hosts boot no unit of dayone's starts with the machine.
func TestUnitsBeginWithTheBootstrap(t *testing.T) {
	for _, unit := range []string{bootstrapnode.GateUnit, bootstrapnode.FetchUnit, bootstrapnode.BootstrapUnit} {
		text := bootstrapnode.WithBootstrap(bootstrapnode.Unit(unit))
		assert.Contains(t, text, "WantedBy=bootkube.service", unit)
		assert.NotContains(t, text, "WantedBy=multi-user.target", unit)
	}
}
