package deployers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

func TestNodeReachesItsImageThroughTheMirrorWithOneReboot(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs)
		before := f.registry.BlobGets()
		f.start()
		r := f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))

		assert.Equal(t, kind, r.Deployer, r.Reason)
		assert.Equal(t, f.image, r.Booted)
		assert.Equal(t, 1, r.Reboots)
		boots, err := f.node.Boots()
		require.NoError(t, err)
		assert.Equal(t, 2, boots)
		assert.Equal(t, 3, f.registry.BlobGets()-before, "the configuration twice and the one layer that the stock OS lacks")
		assert.Equal(t, "hello", f.output("hello"))
		assert.Contains(t, f.output("cat", "/proc/cmdline"), kernelArgument)
		assert.Contains(t, f.output("cat", "/proc/cmdline"), "root=LABEL=root")
		assert.Equal(t, f.image, f.output("cat", "/etc/machine-config-daemon/currentimage"))
		assert.NotRegexp(t, `(?m)\bboth$`, f.output("ostree", "admin", "config-diff"), "written by Ignition and in the image: no local edit")
		assert.NotContains(t, f.log(), deploytest.Password)
		s := f.status()
		assert.Equal(t, f.image, s.Booted.Image.String())
		assert.Contains(t, s.Booted.KernelArguments, kernelArgument)
		assert.NotNil(t, s.Rollback)
		assert.Nil(t, s.Staged)
	})
}

func TestNodeThatRunsTheImageAlreadyDoesNotReboot(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			digest, err := f.base.Digest()
			require.NoError(f.t, err)
			f.served.Spec.OSImageURL, f.served.Spec.KernelArguments = repository+"@"+digest.String(), nil
		})
		f.start()
		r := f.waitDone()
		require.NoError(t, f.node.WaitReady(t.Context()))
		boots, err := f.node.Boots()
		require.NoError(t, err)
		assert.Equal(t, 1, boots)
		assert.Zero(t, r.Reboots)
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
	})
}

func TestNodeGoesOnWhenTheFaultIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, heal func(f *fixture)
		class       deploy.Class
	}{
		"registry is down": {func(f *fixture) { f.outlet.setDown(f.t) }, func(f *fixture) { f.outlet.setUp(f.t) }, deploy.ClassUnreachable},
		"corrupted layer": {func(f *fixture) {
			f.registry.Spoil(f.registry.ChangeLayers(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }))
		}, func(f *fixture) { f.registry.Spoil(nil) }, deploy.ClassCorrupted},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
				f := newFixture(t, kind, programs)
				c.spoil(f)
				f.start()
				f.until("waiting", func() bool { r := f.record(); return r.State == firstboot.StateWaiting && r.Attempts >= 2 })
				r := f.record()
				assert.Equal(t, c.class, r.Class, r.Message)
				assert.Contains(t, r.Message, "next: ")
				require.NoError(t, f.node.WaitReady(t.Context()))
				second, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "firstboot")
				require.NoError(t, err)
				assert.Equal(t, 1, second.ExitCode)
				assert.Contains(t, second.Stderr, firstboot.ErrBusy.Error(), "one agent at a time")
				c.heal(f)
				r = f.waitDone()
				assert.Equal(t, f.image, r.Booted)
				assert.Equal(t, 1, r.Reboots)
			})
		})
	}
}

// hold lets an import's layers wait until release is called; its first blob is the configuration.
func (f *fixture) hold() (reached func() bool, release func()) {
	gate, first := make(chan struct{}), f.registry.BlobGets()
	f.registry.Spoil(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") || f.registry.BlobGets() <= first+1 {
			return false
		}
		select {
		case <-gate:
		case <-r.Context().Done():
		case <-f.t.Context().Done():
		}
		return false
	})
	return func() bool { return f.registry.BlobGets() > first+1 }, func() {
		close(gate)
		f.registry.Spoil(nil)
	}
}

func TestPowerCutIsRecovered(t *testing.T) {
	const mark = "/var/go"
	for name, c := range map[string]struct {
		prepare func(f *fixture)
		reached func(f *fixture) bool
	}{
		"in the middle of staging": {prepare: func(f *fixture) {
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
		}, reached: func(f *fixture) bool { return f.registry.BlobGets() > 2 }},
		"staged": {prepare: func(f *fixture) {
			f.config.BeforeReboot = []string{"/bin/sh", "-c", "test -e " + mark + " || exec sleep 600"}
		}, reached: func(f *fixture) bool { return strings.Contains(f.log(), "image is staged") }},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
				f := newFixture(t, kind, programs, c.prepare)
				f.start()
				f.until("the step", func() bool { return c.reached(f) })
				require.NoError(t, f.node.PowerCut(t.Context()))
				f.registry.Spoil(nil)
				f.put(mark, 0o644, nil)
				f.start()
				r := f.waitDone()
				assert.Equal(t, f.image, r.Booted)
				assert.Equal(t, 1, r.Reboots)
				assert.Contains(t, f.output("cat", "/proc/cmdline"), kernelArgument)
			})
		})
	}
}

func TestUnhealthyImageIsLeftOnceAndForGood(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.config.Health, f.config.HealthTimeout = []string{"/bin/test", "-e", "/var/healthy"}, installconfig.Duration(200*time.Millisecond)
		})
		f.start()
		f.until("back on stock", func() bool { return f.record().State == firstboot.StateRolledBack })
		require.NoError(t, f.node.WaitBoot(t.Context(), 3))
		assert.NotEqual(t, f.image, f.record().Booted)
		assert.Contains(t, f.record().WentBack, "not healthy")
		assert.Equal(t, "both", f.output("cat", "/etc/both"), "the stock OS has its /etc as it left it")
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, firstboot.StateRolledBack, f.record().State)
		boots, err := f.node.Boots()
		require.NoError(t, err)
		assert.Equal(t, 4, boots, "no second pivot")

		f.put("/var/healthy", 0o644, nil)
		again, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "firstboot", "--retry")
		t.Logf("the node goes down under the command: %+v %v", again, err)
		r := f.waitDone()
		assert.Equal(t, f.image, r.Booted)
	})
}
