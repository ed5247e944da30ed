package deployers

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/firstboot"
)

// Marks on the node's disk let hooks of the agent end; until then they hold it at their step.
const (
	rebootMark = "/var/go-reboot"
	healthMark = "/var/go-health"
)

func untilMarked(mark string) []string {
	return []string{"/bin/sh", "-c", "test -e " + mark + " || exec sleep 600"}
}

// cut is a power cut at one step; prepare is done while the power is off, or before the first start.
type cut struct {
	name    string
	prepare func(f *fixture)
	reached func(f *fixture) bool
}

func cuts() []cut {
	return []cut{
		{"before staging, in the middle of a layer", func(f *fixture) {
			f.registry.Spoil(func(_ http.ResponseWriter, r *http.Request) bool {
				if f.registry.BlobGets() <= 2 { // the configuration, for preflight and import
					return false
				}
				select {
				case <-r.Context().Done():
				case <-f.t.Context().Done():
				}
				return true
			})
		}, func(f *fixture) bool { return f.registry.BlobGets() > 2 }},
		{"with the image staged", func(f *fixture) { f.registry.Spoil(nil) },
			func(f *fixture) bool { return strings.Contains(f.log(), "image is staged") }},
		{"as soon as the reboot is asked for", func(f *fixture) { f.put(rebootMark, 0o644, nil) },
			func(f *fixture) bool { return f.record().Reboots == 1 }},
		// ostree makes the new deployment's etc when it finalizes, before it changes the boot entries; a large local file
		// makes that last. On a machine that is too busy to look in time, the cut comes after it.
		{"in the middle of finalizing", func(f *fixture) { f.put("/etc/large", 0o644, []byte(noise(48<<20))) },
			func(f *fixture) bool {
				r := f.record()
				return r.Reboots == 2 && f.mergesEtc() || r.State == firstboot.StateVerifying
			}},
		{"after the reboot, before it is verified", nil, func(f *fixture) bool {
			return f.record().
				State == firstboot.StateVerifying
		}},
	}
}

// One node loses power at every step, one after the other.
func TestPowerCutAtAnyStepIsRecovered(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.config.BeforeReboot, f.config.Health, f.config.MaxReboots = untilMarked(rebootMark), untilMarked(healthMark), 5
		})
		for _, c := range cuts() {
			if c.prepare != nil {
				c.prepare(f)
			}
			f.start()
			t.Log(c.name)
			f.until(c.name, func() bool { return c.reached(f) })
			require.NoError(t, f.node.PowerCut(t.Context()))
			entries, err := filepath.Glob(filepath.Join(f.node.Sysroot, "boot/loader/entries/*"))
			require.NoError(t, err)
			t.Logf("%s: boot entries at the cut: %d", c.name, len(entries))
		}
		f.put(healthMark, 0o644, nil)
		f.start()
		r := f.waitDone()
		assert.Equal(t, f.image, r.Booted)
		assert.LessOrEqual(t, r.Reboots, 3, "two that were cut, and the one that led there")
		assert.Contains(t, f.output("cat", "/proc/cmdline"), kernelArgument)
	})
}

// mergesEtc tells that ostree has begun to make the second deployment's etc.
func (f *fixture) mergesEtc() bool {
	etc, err := filepath.Glob(filepath.Join(f.node.Sysroot, "ostree/deploy", testnode.Stateroot, "deploy/*.0/etc"))
	require.NoError(f.t, err)
	return len(etc) > 1
}

func TestUnhealthyImageIsLeftOnceAndForGood(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.config.Health, f.config.HealthTimeout = []string{"/bin/test", "-e", healthMark}, soon(200)
		})
		f.start()
		f.until("back on stock", func() bool { return f.record().State == firstboot.StateRolledBack })
		require.NoError(t, f.node.WaitBoot(t.Context(), 3))
		assert.NotEqual(t, f.image, f.record().Booted)
		assert.Contains(t, f.record().WentBack, "not healthy within 200ms")
		// In the log below /var: of the console, the last words before a reboot may be lost.
		assert.Contains(t, f.output("cat", firstboot.StateDir+"/log"), "the image is not healthy, reverting")
		assert.Equal(t, "both", f.output("cat", "/etc/both"), "the base OS has its /etc as it left it")
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, firstboot.StateRolledBack, f.record().State)
		assert.Equal(t, 4, f.boots(), "no second pivot")

		f.config.HealthTimeout = 0 // the default: a busy machine may need more than moments for a healthy image's command
		f.put(firstboot.ConfigPath, 0o644, f.ignition(firstboot.ConfigPath))
		f.put(healthMark, 0o644, nil)
		again, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "firstboot", "--retry")
		t.Logf("the node goes down under the command: %+v %v", again, err)
		r := f.waitDone()
		assert.Equal(t, f.image, r.Booted)
	})
}
