package firstboot

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

func TestNodeReachesItsImageWithOneReboot(t *testing.T) {
	f := newFixture(t)
	before := f.registry.BlobGets()
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))

	assert.Equal(t, f.image, r.Booted)
	assert.Len(t, r.Boots, 2)
	assert.Equal(t, 1, r.Reboots)
	assert.Equal(t, 2, f.boots())
	assert.Equal(t, deploy.KindOSTree, r.Deployer)
	assert.NotEmpty(t, r.Reason)
	assert.Equal(t, 3, f.registry.BlobGets()-before, "the configuration twice and the one layer that the stock OS lacks")
	assert.Equal(t, "hello", f.output("hello"))
	assert.Equal(t, "image", f.output("cat", "/etc/from-image"))
	assert.Contains(t, f.output("cat", "/proc/cmdline"), "dayone.test=1")
	assert.Equal(t, f.image, f.output("cat", "/etc/machine-config-daemon/currentimage"))
	assert.Contains(t, f.output("cat", "/etc/machine-config-daemon/currentconfig"), "rendered-master-final")
	assert.Equal(t, "600", f.output("stat", "-c", "%a", "/etc/machine-config-daemon/currentconfig"))
	assert.Contains(t, f.output("cat", "/etc/machine-config-daemon/node-annotations.json"), `"`+manifests.AnnotationDesiredOSImage+`":"`+f.image)
	assert.NotRegexp(t, `(?m)\bboth$`, f.output("ostree", "admin", "config-diff"), "written by Ignition and in the image: no local edit")
	assert.NotContains(t, f.log(), deploytest.Password)
	assert.NotContains(t, f.output("cat", StateDir+"/status.json", StateDir+"/log"), deploytest.Password)

	require.NoError(t, f.node.Reboot(t.Context()))
	assert.Equal(t, StateDone, f.record().State)
	assert.Equal(t, 1, f.record().Reboots, "nothing more to do on a later boot")
}

func TestSystemdNodeReachesItsImageWithOneReboot(t *testing.T) {
	t.Parallel()
	f := newFixtureOn(t, baseimage.Debian)
	f.start()
	r := f.waitDone()
	require.NoError(t, f.node.WaitBoot(t.Context(), 2))
	assert.Equal(t, f.image, r.Booted)
	assert.Equal(t, 2, f.boots())
	assert.Equal(t, 1, r.Reboots)
	assert.Contains(t, f.log(), "dayone-firstboot: this node runs its image")
	assert.Contains(t, f.output("journalctl", "-b", "-u", UnitName), "this node runs its image")
	assert.Equal(t, "running", f.output("systemctl", "is-system-running"))
	assert.NotRegexp(t, `(?m)\bboth$`, f.output("ostree", "admin", "config-diff"))

	require.NoError(t, f.node.Reboot(t.Context()))
	assert.Equal(t, "inactive", strings.TrimSpace(f.result("systemctl", "is-active", UnitName)), "its conditions hold it back")
}

func TestNodeStaysOnStockAndGoesOnWhenTheFaultIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f *fixture)
		heal  func(f *fixture)
		class deploy.Class
	}{
		"registry answers 401": {func(f *fixture) { f.registry.Spoil(deploytest.Status(401)) }, healRegistry, deploy.ClassUnauthorized},
		"registry answers 403": {func(f *fixture) { f.registry.Spoil(deploytest.Status(403)) }, healRegistry, deploy.ClassForbidden},
		"registry answers 500": {func(f *fixture) { f.registry.Spoil(deploytest.Status(500)) }, healRegistry, deploy.ClassRegistry},
		"image is not there":   {func(f *fixture) { f.registry.Spoil(deploytest.Status(404)) }, healRegistry, deploy.ClassNotFound},
		"corrupted layer": {func(f *fixture) {
			f.registry.Spoil(f.registry.ChangeLayers(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }))
		}, healRegistry, deploy.ClassCorrupted},
		"truncated layer": {func(f *fixture) {
			f.registry.Spoil(f.registry.ChangeLayers(func(b []byte) []byte { return b[:len(b)-9] }))
		}, healRegistry, deploy.ClassCorrupted},
		"wrong CA": {func(f *fixture) {
			f.put(certsDir+"/"+f.registry.Addr+"/ca.crt", 0o644, deploytest.NewAuthority(f.t).PEM)
		},
			func(f *fixture) {
				f.put(certsDir+"/"+f.registry.Addr+"/ca.crt", 0o644, f.registry.Authority.PEM)
			}, deploy.ClassUntrusted},
		"names are not resolved": {func(f *fixture) { f.put(MirrorPath, 0o644, nil) }, // only the final name is left, and nobody knows it
			func(f *fixture) {
				drop, _, err := mirrorDropIn(f.mirrors())
				require.NoError(f.t, err)
				f.put(MirrorPath, 0o644, []byte(drop))
			}, deploy.ClassUnreachable},
		"this node's clock is years behind": {func(f *fixture) { f.registry.SetWindow(f.t, time.Now().AddDate(4, 0, 0), time.Now().AddDate(5, 0, 0)) },
			func(f *fixture) { f.registry.SetValidity(f.t, time.Now().Add(time.Hour)) }, deploy.ClassExpired},
		"this node's clock is years ahead": {func(f *fixture) {
			f.registry.SetWindow(f.t, time.Now().AddDate(-5, 0, 0), time.Now().AddDate(-4, 0, 0))
		},
			func(f *fixture) { f.registry.SetValidity(f.t, time.Now().Add(time.Hour)) }, deploy.ClassExpired},
		"certificate has expired": {func(f *fixture) { f.registry.SetValidity(f.t, time.Now().Add(-time.Hour)) },
			func(f *fixture) { f.registry.SetValidity(f.t, time.Now().Add(time.Hour)) }, deploy.ClassExpired},
		"wrong password": {func(f *fixture) { f.put(AuthPath, 0o600, []byte(`{"auths":{"`+f.registry.Addr+`":{"auth":"YTpi"}}}`)) },
			func(f *fixture) {
				f.put(AuthPath, 0o600, []byte(`{"auths":{"`+f.registry.Addr+`":{"auth":"cHVsbGVyOnMzY3JldC1jYW5hcnk="}}}`))
			}, deploy.ClassUnauthorized},
		"no network": {func(f *fixture) { require.NoError(f.t, f.node.SetLink(f.t.Context(), false)) },
			func(f *fixture) { require.NoError(f.t, f.node.SetLink(f.t.Context(), true)) }, deploy.ClassUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.spoil(f)
			f.start()
			r := f.wait("waiting", func(r Record) bool { return r.State == StateWaiting && r.Attempts >= 2 })
			assert.Equal(t, c.class, r.Class, r.Message)
			assert.Contains(t, r.Message, "next: ")
			if c.class == deploy.ClassExpired {
				assert.Contains(t, r.Message, "set this node's clock")
				assert.Contains(t, r.Message, "current time 20", "what this node takes for the time")
			}
			assert.Contains(t, f.log(), "dayone-firstboot: this node stays on its present OS: ")
			assert.Equal(t, 1, f.boots())
			c.heal(f)
			r = f.waitDone()
			assert.Equal(t, f.image, r.Booted)
			assert.Equal(t, 2, f.boots())
		})
	}
}

func healRegistry(f *fixture) { f.registry.Spoil(nil) }

func TestSlowRegistryIsWaitedFor(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.registry.Spoil(f.registry.Slowly(20, 50*time.Millisecond)) })
	f.start()
	r := f.waitDone()
	assert.Equal(t, f.image, r.Booted)
	assert.Equal(t, 2, f.boots())
	assert.NotContains(t, f.log(), "stays on its present OS")
}
