package daemon_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
)

// TestJournalsOfOtherVersions goes on from what an agent of another version has left on the disk, in the middle of a
// way.
func TestJournalsOfOtherVersions(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     daemon.State
		change func(journal map[string]any)
	}{
		{"newer, with fields that are not known", daemon.Applying, func(j map[string]any) {
			j["softReboot"], j["plan"].(map[string]any)["cost"] = map[string]any{"nextroot": true}, 3
		}},
		{"newer, in a state that is not known", daemon.Applying, func(j map[string]any) { j["state"] = "Fetching" }},
		{"newer, with a level that is not known", daemon.Applying,
			func(j map[string]any) { j["plan"].(map[string]any)["level"] = "SoftReboot" }},
		{"older, without what later ones note", daemon.Draining, func(j map[string]any) {
			for _, key := range []string{"journey", "entered", "forced"} {
				delete(j, key)
			}
		}},
		{"older, about to reboot", daemon.Rebooting, func(j map[string]any) {
			for _, key := range []string{"journey", "entered", "forced", "readyIn", "from"} {
				delete(j, key)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.name = "skew-" + string(c.at[0]+'a'-'A') + "-" + filepath.Base(f.m.root)
			f.restart()
			f.join(rendered("rendered-skew-1", "/etc/a=1"), image(1))
			f.aim(rendered("rendered-skew-2", "/etc/a=2"), image(2))
			f.reaches(c.at)
			at := filepath.Join(f.m.root, daemon.JournalPath)
			raw, err := os.ReadFile(at)
			require.NoError(t, err)
			var journal map[string]any
			require.NoError(t, json.Unmarshal(raw, &journal))
			c.change(journal)
			raw, err = json.Marshal(journal)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(at, raw, 0o600))
			n := f.object()
			was := n.DeepCopy()
			n.Annotations[manifests.DayonePrefix+"of-another-version"] = `{"x":1}`
			require.NoError(t, f.env.Client.Patch(t.Context(), n, client.MergeFrom(was)))
			f.restart()
			f.settle()
			assert.Equal(t, 1, f.m.boots, "one reboot")
			assert.Equal(t, image(2), f.m.booted)
			assert.Contains(t, f.object().Annotations, manifests.DayonePrefix+"of-another-version")
		})
	}
}
