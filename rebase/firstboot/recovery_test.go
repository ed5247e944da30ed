package firstboot

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// block makes a hook command that does not end until the test has put a file on the node's disk.
func block(file string) []string {
	return []string{"/bin/sh", "-c", "test -e " + file + " || exec sleep 600"}
}

func TestPowerCutAtAnyStepIsRecovered(t *testing.T) {
	const mark = "/var/go"
	for name, c := range map[string]struct {
		prepare func(f *fixture)
		reached func(f *fixture, r Record) bool
		heal    func(f *fixture)
	}{
		"while a layer is fetched": {
			prepare: func(f *fixture) {
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
			},
			reached: func(_ *fixture, r Record) bool { return r.State == StateStaging },
			heal:    healRegistry,
		},
		"with the image staged": {
			prepare: func(f *fixture) { f.config.BeforeReboot = block(mark) },
			reached: func(f *fixture, r Record) bool {
				return r.State == StateStaging && strings.Contains(f.log(), "image is staged")
			},
		},
		"as soon as the reboot is asked for": {
			prepare: func(*fixture) {},
			reached: func(_ *fixture, r Record) bool { return r.Reboots == 1 },
		},
		"in the middle of finalizing": {
			prepare: func(*fixture) {},
			// ostree makes the new deployment's etc when it finalizes, before it changes the boot entries.
			reached: func(f *fixture, r Record) bool { return r.Reboots == 1 && f.mergesEtc() },
		},
		"after the reboot, before it is verified": {
			prepare: func(f *fixture) { f.config.Health = block(mark) },
			reached: func(_ *fixture, r Record) bool { return r.State == StateVerifying },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.prepare)
			f.start()
			f.wait("the step", func(r Record) bool { return c.reached(f, r) })
			require.NoError(t, f.node.PowerCut(t.Context()))
			entries, err := filepath.Glob(filepath.Join(f.node.Sysroot, "boot/loader/entries/*"))
			require.NoError(t, err)
			t.Logf("boot entries at the cut: %d", len(entries))
			if c.heal != nil {
				c.heal(f)
			}
			f.put(mark, 0o644, nil)
			f.start()
			r := f.waitDone()
			assert.Equal(t, f.image, r.Booted)
			assert.LessOrEqual(t, r.Reboots, 2)
		})
	}
}

// mergesEtc tells that ostree has begun to make the second deployment's etc.
func (f *fixture) mergesEtc() bool {
	etc, err := filepath.Glob(filepath.Join(f.node.Sysroot, "ostree/deploy", testnode.Stateroot, "deploy/*.0/etc"))
	require.NoError(f.t, err)
	return len(etc) > 1
}

func TestUnhealthyImageIsLeftOnceAndForGood(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.config.Health, f.config.HealthTimeout = []string{"/bin/test", "-e", "/var/healthy"}, installconfig.Duration(300*time.Millisecond)
	})
	f.start()
	r := f.wait("back on stock", func(r Record) bool { return r.State == StateRolledBack })
	require.NoError(t, f.node.WaitBoot(t.Context(), 3))
	assert.NotEqual(t, f.image, r.Booted)
	assert.Contains(t, r.WentBack, "not healthy within 300ms")
	assert.Equal(t, 3, f.boots())
	// In the log below /var: of the console, the last words before a reboot may be lost.
	assert.Contains(t, f.output("cat", StateDir+"/log"), "the image is not healthy, going back")
	assert.Equal(t, "both", f.output("cat", "/etc/both"), "the stock OS has its /etc as it left it")

	require.NoError(t, f.node.Reboot(t.Context()))
	assert.Equal(t, StateRolledBack, f.record().State)
	assert.Equal(t, 4, f.boots(), "no second pivot")

	f.put("/var/healthy", 0o644, nil)
	again, err := f.node.Exec(t.Context(), DaemonPath, "firstboot", "--retry")
	t.Logf("the node goes down under the command: %+v %v", again, err)
	r = f.waitDone()
	assert.Equal(t, f.image, r.Booted)
}

func TestImageThatThisNodeMustNotBootIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change change
		class  deploy.Class
		says   string
	}{
		"built from another config": {func(f *fixture) { f.served.Spec.OSImageURL = f.push(f.layered("sha256:0123456789abcdef")) },
			deploy.ClassUnlike, "the image holds config rendered-master-first"},
		"says nothing of its config": {func(f *fixture) { f.served.Spec.OSImageURL = f.push(f.layered("")) }, deploy.ClassUnlike, "no label " + LabelConfigHash},
		"another architecture": {func(f *fixture) {
			img := f.layered(f.hash())
			config, err := img.ConfigFile()
			require.NoError(f.t, err)
			config = config.DeepCopy()
			config.Architecture = "s390x"
			img, err = mutate.ConfigFile(img, config)
			require.NoError(f.t, err)
			f.served.Spec.OSImageURL = f.push(img)
		}, deploy.ClassArchitecture, "s390x"},
		"not bootable": {func(f *fixture) {
			img := f.layered(f.hash())
			config, err := img.ConfigFile()
			require.NoError(f.t, err)
			config = config.DeepCopy()
			delete(config.Config.Labels, deploy.LabelBootc)
			delete(config.Config.Labels, deploy.LabelOSTreeBootable)
			img, err = mutate.ConfigFile(img, config)
			require.NoError(f.t, err)
			f.served.Spec.OSImageURL = f.push(img)
		}, deploy.ClassNotBootable, "ostree.bootable"},
		"without a kernel": {func(f *fixture) {
			f.served.Spec.OSImageURL = f.push(f.layered(f.hash(), deploytest.Entry{Name: "usr/lib/.wh.modules"}))
		}, deploy.ClassNoKernel, "vmlinuz"},
		"hostile path": {func(f *fixture) {
			f.served.Spec.OSImageURL = f.push(f.layered(f.hash(), deploytest.Entry{Name: "usr/../../escape", Body: "x"}))
		}, deploy.ClassHostile, "leaves the image"},
		"file where this node has a directory": {func(f *fixture) {
			f.served.Spec.OSImageURL = f.push(f.layered(f.hash(), deploytest.Entry{Name: "etc/dayone", Body: "a file\n"}))
		}, deploy.ClassEtcConflict, "/etc/dayone"},
		"named by a tag": {func(f *fixture) { f.served.Spec.OSImageURL = repository + ":latest" }, deploy.ClassConfig, "digest"},
		"FIPS wanted, not there": {func(f *fixture) {
			f.served.Spec.FIPS = true
			f.served.Spec.OSImageURL = f.push(f.layered(f.hash()))
		}, deploy.ClassConfig, "fips=1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.change)
			f.start()
			r := f.wait("waiting", func(r Record) bool { return r.State == StateWaiting && r.Attempts >= 2 })
			assert.Equal(t, c.class, r.Class, r.Message)
			assert.Contains(t, r.Message, c.says)
			assert.Equal(t, 0, r.Reboots)
			require.NoError(t, f.node.WaitReady(t.Context()))
			assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
		})
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.registry.Spoil(deploytest.Status(500)) })
	f.start()
	f.wait("waiting", func(r Record) bool { return r.State == StateWaiting })
	require.NoError(t, f.node.WaitReady(t.Context()))
	r, err := f.node.Exec(t.Context(), DaemonPath, "firstboot")
	require.NoError(t, err)
	assert.Equal(t, 1, r.ExitCode)
	assert.Contains(t, r.Stderr, ErrBusy.Error())
	f.registry.Spoil(nil)
	f.waitDone()
}

func TestNodeThatRunsTheImageAlreadyDoesNotReboot(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		digest, err := f.base.Digest()
		require.NoError(f.t, err)
		f.served.Spec.OSImageURL, f.served.Spec.KernelArguments = repository+"@"+digest.String(), nil
	})
	f.start()
	r := f.waitDone()
	assert.Equal(t, 0, r.Reboots)
	assert.Equal(t, 1, f.boots())
}

func TestNodeOfAPoolWithoutLayeringTakesAStockImage(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.served.Annotations = nil
		f.served.Spec.OSImageURL = f.push(f.layered(""))
	})
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	assert.Equal(t, f.image, r.Booted)
	assert.NotContains(t, f.output("cat", "/etc/machine-config-daemon/node-annotations.json"), "Image", "it is not layered")
	assert.NotContains(t, f.output("ls", "/etc/machine-config-daemon"), "currentimage")
}
