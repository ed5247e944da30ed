package deployers

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

// stock is a node on its stock OS where nothing runs by itself.
func stock(t *testing.T, kind deploy.Kind, programs []string, changes ...func(f *fixture)) *fixture {
	t.Helper()
	f := newFixture(t, kind, programs, changes...)
	f.disable(firstboot.UnitName)
	f.start()
	require.NoError(t, f.node.WaitReady(t.Context()))
	return f
}

func TestStagingSaysWhatToDoAndChangesNothing(t *testing.T) {
	type fault struct {
		name        string
		spoil, heal func(f *fixture)
		image       func(f *fixture) v1.Image // default: the good one
		says        string
	}
	status := func(code int) func(f *fixture) {
		return func(f *fixture) { f.registry.Spoil(deploytest.Status(code)) }
	}
	faults := []fault{
		{name: "401", spoil: status(401), says: `next: check the pull credential`},
		{name: "403", spoil: status(403), says: `next: allow this node's registry user`},
		{name: "404", spoil: status(404), says: `next: check that the image was pushed`},
		{name: "500", spoil: status(500), says: `next: look at the registry's log`},
		{name: "registry is down", spoil: func(f *fixture) { f.outlet.setDown(f.t) }, heal: func(f *fixture) { f.outlet.setUp(f.t) }, says: `next: check that the registry runs`},
		{name: "wrong CA", spoil: func(f *fixture) { f.put(caPath, 0o644, deploytest.NewAuthority(f.t).PEM) },
			heal: func(f *fixture) { f.put(caPath, 0o644, f.registry.Authority.PEM) }, says: `next: put the registry's CA`},
		{name: "expired certificate", spoil: func(f *fixture) { f.registry.SetValidity(f.t, time.Now().Add(-time.Hour)) },
			heal: func(f *fixture) { f.registry.SetValidity(f.t, time.Now().Add(time.Hour)) }, says: `next: set this node's clock`},
		{name: "no credential", spoil: func(f *fixture) { f.output("mv", firstboot.AuthPath, "/etc/aside") },
			heal: func(f *fixture) { f.output("mv", "/etc/aside", firstboot.AuthPath) }, says: `next: check the pull credential`},
		{name: "another auth file comes first", spoil: func(f *fixture) {
			f.output("sh", "-c", `mkdir -p /run/ostree; echo '{"auths":{}}' >/run/ostree/auth.json`)
		},
			heal: func(f *fixture) { f.output("rm", "/run/ostree/auth.json") }, says: `next: check the pull credential`},
		{name: "corrupted layer", spoil: func(f *fixture) {
			f.registry.Spoil(f.registry.ChangeLayers(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }))
		}, says: `next: (repair the copy|push the image again)`},
		{name: "truncated layer", spoil: func(f *fixture) {
			f.registry.Spoil(f.registry.ChangeLayers(func(b []byte) []byte { return b[:len(b)-9] }))
		}, says: `next: (repair the copy|push the image again)`},
		{name: "another architecture", image: func(f *fixture) v1.Image {
			return f.edit(f.layered(), func(c *v1.ConfigFile) { c.Architecture = "s390x" })
		},
			says: `s390x.*next: build the image for this node's architecture`},
		{name: "no label", image: func(f *fixture) v1.Image {
			return f.edit(f.layered(), func(c *v1.ConfigFile) {
				delete(c.Config.Labels, deploy.LabelBootc)
				delete(c.Config.Labels, deploy.LabelOSTreeBootable)
			})
		}, says: `next: build it from a bootable OS image`},
		{name: "no kernel", image: func(f *fixture) v1.Image { return f.layered(deploytest.Entry{Name: "usr/lib/.wh.modules"}) }, says: `next: build .*from a bootable OS image`},
	}
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs)
		for _, c := range faults {
			image := f.image
			if c.image != nil {
				image = f.push(c.image(f))
			}
			if c.spoil != nil {
				c.spoil(f)
			}
			r, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "stage", image)
			require.NoError(t, err)
			f.registry.Spoil(nil)
			if c.heal != nil {
				c.heal(f)
			}
			assert.Equal(t, 1, r.ExitCode, c.name)
			assert.Regexp(t, c.says, r.Stderr, c.name)
			assert.NotContains(t, r.Stderr, deploytest.Password, c.name)
		}
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
		f.output(firstboot.DaemonPath, "stage", f.image) // nothing of all that is left in the way
		assert.Equal(t, f.image, f.status().Staged.Image.String())
	})
}

// noise does not get smaller in a layer.
func noise(bytes int) string {
	random := make([]byte, bytes)
	_, _ = rand.Read(random) // never fails, see its documentation
	return string(random)
}

func TestFullDiskIsSaidAndNothingChanges(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs, func(f *fixture) { f.disk = 320 << 20 })
		image := f.push(f.layered(deploytest.Entry{Name: "usr/share/noise", Body: noise(4 << 20)}))
		f.run("dd if=/dev/zero of=/var/full bs=1M")
		r, said := f.run(firstboot.DaemonPath + " stage " + image)
		assert.Equal(t, 1, r.ExitCode)
		assert.Contains(t, said, "next: free")
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
		f.output("rm", "/var/full")
		f.output(firstboot.DaemonPath, "stage", image)
		assert.Equal(t, image, f.status().Staged.Image.String())
	})
}

func TestFullBootLeavesTheNodeOnItsStockOS(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.boot = 1 << 20
			f.served.Spec.OSImageURL = f.push(f.layered(deploytest.Entry{Name: "usr/lib/modules/" + baseimage.KernelVersion + "/vmlinuz", Body: noise(2 << 20)}))
		})
		f.start()
		f.until("waiting", func() bool { return f.record().State == firstboot.StateWaiting })
		r := f.record()
		if kind == deploy.KindOSTree { // the others copy the kernel at shutdown without a look at the space
			assert.Equal(t, deploy.ClassDiskFull, r.Class, r.Message)
			assert.Zero(t, r.Reboots)
		} else {
			assert.Contains(t, r.Message, "next: look at journalctl")
			assert.Equal(t, 2, r.Reboots)
		}
		require.NoError(t, f.node.WaitReady(t.Context()))
		assert.NotEqual(t, f.image, f.status().Booted.Image.String())
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
	})
}

func TestLaterImageAndTheWayBack(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs)
		second := f.push(f.layered(deploytest.Entry{Name: "etc/both", Body: "second\n"}, deploytest.Entry{Name: "etc/new", Body: "new\n"}))
		f.output(firstboot.DaemonPath, "stage", second)
		f.output(firstboot.DaemonPath, "stage", f.image) // another one instead
		f.output(firstboot.DaemonPath, "stage", f.image) // again: nothing changes
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, f.image, f.status().Booted.Image.String())
		f.output(firstboot.DaemonPath, "stage", f.image)
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)", "it runs already")
		f.output("sh", "-c", "echo edited >/etc/from-image")

		args := []string{firstboot.DaemonPath, "stage", second}
		if kind != deploy.KindBootc { // bootc takes them from the image
			args = append(args, "--karg-append=second=1", "--karg-append=third=1", "--karg-delete="+kernelArgument)
		}
		f.output(args...)
		require.NoError(t, f.node.Reboot(t.Context()))
		s := f.status()
		assert.Equal(t, second, s.Booted.Image.String())
		assert.Equal(t, f.image, s.Rollback.Image.String())
		assert.Equal(t, "second", f.output("cat", "/etc/both"), "unmodified, so it follows the image")
		assert.Equal(t, "edited", f.output("cat", "/etc/from-image"), "a local edit is kept")
		if kind != deploy.KindBootc {
			assert.Contains(t, s.Booted.KernelArguments, "second=1")
			assert.Contains(t, s.Booted.KernelArguments, "third=1")
			assert.NotContains(t, s.Booted.KernelArguments, kernelArgument)
		}

		f.output(firstboot.DaemonPath, "rollback")
		f.output(firstboot.DaemonPath, "rollback") // again: still back, not forth
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, f.image, f.status().Booted.Image.String())
		assert.Equal(t, "both", f.output("cat", "/etc/both"), "the earlier deployment's /etc")
	})
}

func TestTwoStageAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs)
		reached, release := f.hold()
		first := f.background(firstboot.DaemonPath, "stage", f.image)
		f.until("the first one fetches a layer", reached)
		second := f.background(firstboot.DaemonPath, "stage", f.image)
		if kind == deploy.KindBootc { // its second call waits for the first
			release()
			assert.Zero(t, (<-second).ExitCode)
			assert.Zero(t, (<-first).ExitCode)
		} else {
			r := <-second
			assert.Equal(t, 1, r.ExitCode)
			assert.Contains(t, r.Stderr, "next: wait until the other")
			release()
			r = <-first
			assert.Zero(t, r.ExitCode, r.Stderr)
		}
		s := f.status()
		require.NotNil(t, s.Staged)
		assert.Equal(t, f.image, s.Staged.Image.String())
	})
}

// background runs a command on the node; its result comes when it has ended.
func (f *fixture) background(argv ...string) <-chan testnode.Result {
	done := make(chan testnode.Result, 1)
	go func() {
		var out, errs bytes.Buffer
		code, err := f.node.Run(f.t.Context(), testnode.Command{Argv: argv, Stdout: &out, Stderr: &errs})
		if err != nil {
			errs.WriteString(err.Error())
		}
		done <- testnode.Result{Stdout: out.String(), Stderr: errs.String(), ExitCode: code}
	}()
	return done
}
