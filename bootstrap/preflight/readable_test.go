package preflight

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// TestUnreadableConfigs goes through MachineConfigs from which a config follows that its readers refuse, long after
// the build: the config server in both flows, MCO when it looks for runc under an image of the pool's own.
func TestUnreadableConfigs(t *testing.T) {
	inline := func(text string) map[string]any { return map[string]any{"source": "data:," + text} }
	for _, c := range []struct {
		name                  string
		file                  map[string]any
		standalone, openshift string // the rule; "" where it can be read
	}{
		{"mode only", map[string]any{"path": "/etc/a", "mode": 0o600}, "contents-missing", "contents-missing"},
		{"a mode of MCO's own file", map[string]any{"path": "/etc/kubernetes/kubelet.conf", "mode": 0o600},
			"contents-missing", ""},
		{"append only", map[string]any{"path": "/etc/a", "append": []any{inline("a")}}, "", "contents-missing"},
		{"a drop-in that is no TOML", map[string]any{"path": "/etc/crio/crio.conf.d/50-a", "contents": inline("a")},
			"crio-drop-in", "crio-drop-in"},
		{"a drop-in without a source", map[string]any{"path": "/etc/crio/crio.conf.d/50-a",
			"contents": map[string]any{"source": ""}}, "", "crio-drop-in"},
		{"a drop-in", map[string]any{"path": "/etc/crio/crio.conf.d/50-a", "contents": inline("%5Bcrio%5D")}, "", ""},
	} {
		for flow, rule := range map[string]string{"standalone": c.standalone, "openshift": c.openshift} {
			t.Run(fmt.Sprintf("%s, %s", c.name, flow), func(t *testing.T) {
				dir := sample(t)
				if flow == "openshift" {
					dir = openshift(t)
				}
				put(t, dir, "openshift/99_hostile.json", machineConfigOf(t, filesOf(c.file)))
				_, err := Load(dir, platform)
				if rule == "" {
					require.NoError(t, err)
					return
				}
				found := report.Of(err)
				require.Len(t, found, 1, "%v", err)
				assert.Equal(t, rule, found[0].Rule)
				assert.Equal(t, "openshift/99_hostile.json", found[0].File)
				assert.Equal(t, "spec.config.storage.files[0]", found[0].Path)
				assert.Contains(t, found[0].Message, "99-hostile")
			})
		}
	}
}
