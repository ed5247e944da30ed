package deployers

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/host"
	"dayone.dev/dayone/rebase/firstboot"
)

// stock is a node on its base OS where nothing runs by itself; the credential is where first boot would have merged
// it.
func stock(t testing.TB, kind deploy.Kind, programs []string, changes ...change) *fixture {
	t.Helper()
	f := newFixture(t, kind, programs, changes...)
	f.disable(firstboot.UnitName)
	f.put(firstboot.AuthPath, 0o600, f.pullAuth())
	f.start()
	require.NoError(t, f.node.WaitReady(t.Context()))
	return f
}

func TestStageRefusals(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs)
		refused := func(name, image, says string) {
			r, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "stage", image)
			require.NoError(t, err)
			assert.Equal(t, 1, r.ExitCode, name)
			assert.Regexp(t, says, r.Stderr, name)
			assert.Contains(t, r.Stderr, "next: ", name)
			assert.NotContains(t, r.Stderr, deploytest.Password, name)
		}
		for _, c := range append(reachFaults(), credentialFaults()...) {
			if c.name == "wrong password" { // what first boot merges; credentialFaults has stage's
				continue
			}
			c.spoil(f)
			refused(c.name, f.image, c.says)
			f.outlet.setUp(t)
			if c.heal != nil {
				c.heal(f)
			}
			f.registry.Spoil(nil)
		}
		for _, c := range refusals() {
			if c.image != nil && c.class != deploy.ClassUnlike && (c.only == "" || c.only == kind) { // stage knows no config
				refused(c.name, f.push(c.image(f)), c.says)
			}
		}
		assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)")
		f.output(firstboot.DaemonPath, "stage", f.image) // nothing of all that is left in the way
		assert.Equal(t, f.image, f.status().Staged.Image.String())
	})
}

// credentialFaults are those that first boot does not meet: it merges what it was given into whichever file counts.
func credentialFaults() []fault {
	const says = "next: check the pull credential"
	return []fault{
		{"no credential", func(f *fixture) { f.output("mv", firstboot.AuthPath, "/etc/aside") },
			func(f *fixture) { f.output("mv", "/etc/aside", firstboot.AuthPath) }, deploy.ClassUnauthorized, says},
		{"another auth file comes first", func(f *fixture) {
			f.output("sh", "-c", `mkdir -p /run/ostree; echo '{"auths":{}}' >/run/ostree/auth.json`)
		}, func(f *fixture) { f.output("rm", "/run/ostree/auth.json") }, deploy.ClassUnauthorized, says},
	}
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

func TestFullBootLeavesTheNodeOnItsBaseOS(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.boot = 1 << 20
			f.served.Spec.OSImageURL = f.push(f.layered(deploytest.Entry{Name: kernelPath, Body: noise(2 << 20)}))
		})
		f.start()
		f.until("waiting", func() bool { return f.record().State == firstboot.StateWaiting })
		r := f.record()
		assert.Equal(t, deploy.ClassDiskFull, r.Class, r.Message)
		assert.Contains(t, r.Message, "/boot")
		assert.Zero(t, r.Reboots)
		require.NoError(t, f.node.WaitReady(t.Context()))
		assert.NotEqual(t, f.image, f.status().Booted.Image.String())
		// Each attempt stages the image before its kernel can be measured, and takes it back: the next one may be at work by
		// now.
		f.until("nothing is staged", func() bool {
			return !strings.Contains(f.output("ostree", "admin", "status"),
				"(staged)")
		})
	})
}

func TestLaterImageAndTheWayBack(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs)
		second := f.push(f.layered(deploytest.Entry{Name: "etc/both", Body: "second\n"},
			deploytest.Entry{Name: "etc/from-image", Body: "second\n"}, deploytest.Entry{Name: "etc/new", Body: "new\n"}))
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
			f.output(append(args, "--karg-append=former=1", "--karg-append=third=1")...) // staged already, with other arguments
			args = append(args, "--karg-append=second=1", "--karg-append=third=1", "--karg-delete="+kernelArgument,
				"--karg-delete=former=1")
		}
		f.output(args...)
		require.NoError(t, f.node.Reboot(t.Context()))
		s := f.status()
		assert.Equal(t, second, s.Booted.Image.String())
		assert.Equal(t, f.image, s.Rollback.Image.String())
		assert.Equal(t, "second", f.output("cat", "/etc/both"), "unmodified, so it follows the image")
		assert.Equal(t, "edited", f.output("cat", "/etc/from-image"), "a local edit is kept")
		var drift []host.EtcChange
		require.NoError(t, json.Unmarshal([]byte(f.output(firstboot.DaemonPath, "drift")), &drift))
		assert.Contains(t, drift, host.EtcChange{Path: "/etc/from-image", Kind: host.EtcModified}, "and reported")
		for _, d := range drift {
			assert.NotContains(t, []string{"/etc/both", "/etc/new"}, d.Path)
		}
		if kind != deploy.KindBootc {
			assert.Contains(t, s.Booted.KernelArguments, "second=1")
			assert.Contains(t, s.Booted.KernelArguments, "third=1")
			assert.NotContains(t, s.Booted.KernelArguments, kernelArgument)
			assert.NotContains(t, s.Booted.KernelArguments, "former=1")
			f.output(firstboot.DaemonPath, "stage", f.image, "--karg-append=fourth=1")
			f.output(firstboot.DaemonPath, "stage", f.image, "--karg-delete=fourth=1") // nothing that the booted one has not
			require.NoError(t, f.node.Reboot(t.Context()))
			assert.NotContains(t, f.status().Booted.KernelArguments, "fourth=1")
			f.output(firstboot.DaemonPath, "rollback")
			require.NoError(t, f.node.Reboot(t.Context()))
			require.Equal(t, second, f.status().Booted.Image.String())
		}

		f.output(firstboot.DaemonPath, "rollback")
		f.output(firstboot.DaemonPath, "rollback") // again: still back, not forth
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, f.image, f.status().Booted.Image.String())
		assert.Equal(t, "both", f.output("cat", "/etc/both"), "the earlier deployment's /etc")
	})
}

func TestStageAfterPrefetch(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := stock(t, kind, programs)
		ahead := []string{firstboot.DaemonPath, "stage", "--download-only", f.image}
		if kind == deploy.KindBootc {
			r, err := f.node.Exec(t.Context(), ahead...)
			require.NoError(t, err)
			assert.Equal(t, 1, r.ExitCode)
			assert.Contains(t, r.Stderr, "cannot bring an image without staging it")
			return
		}
		before := f.output("ostree", "admin", "status")
		f.output(ahead...)
		assert.Equal(t, before, f.output("ostree", "admin", "status"), "nothing is staged")
		f.output(ahead...) // again: it is there

		// none can be fetched any more
		f.registry.Spoil(f.registry.ChangeLayers(func(layer []byte) []byte { return layer[:len(layer)/2] }))
		f.output(firstboot.DaemonPath, "stage", f.image)
		require.NoError(t, f.node.Reboot(t.Context()))
		assert.Equal(t, f.image, f.status().Booted.Image.String())
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
