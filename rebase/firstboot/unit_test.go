package firstboot

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests/assets"
)

// exposure is what systemd-analyze may say at most of the units that stage images, of 10. They mount, label and set
// owners: it cannot be low.
const exposure = 7.2

var overall = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// First boot and the agent start the same programs, so they are in the same sandbox, and the real systemd takes it.
// What those programs do in it is tested where nodes boot (hack/e2e/deployers, hack/e2e/wholesystem). The bootstrap
// node's units are tested beside them (manifests/assets/bootstrapnode), and their programs in hack/e2e/openshift.
func TestUnitsAreConfined(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		require.Empty(t, os.Getenv("CI"), "systemd-analyze is missing")
		t.Skip("needs systemd-analyze")
	}
	agent, err := assets.AgentUnit()
	require.NoError(t, err)
	assert.Contains(t, agent, "\n"+sandbox+"\n")
	for name, text := range map[string]string{assets.AgentUnitName: agent, UnitName: unitText()} {
		t.Run(name, func(t *testing.T) {
			unit := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(text, DaemonPath, "/bin/true")), 0o600))
			out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
			require.NoError(t, err, string(out))
			assert.NotContains(t, string(out), name+":")
			out, err = exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", unit).CombinedOutput()
			require.NoError(t, err, string(out))
			found := overall.FindSubmatch(out)
			require.NotNil(t, found, string(out))
			got, err := strconv.ParseFloat(string(found[1]), 64)
			require.NoError(t, err)
			assert.LessOrEqual(t, got, exposure)
		})
	}
}
