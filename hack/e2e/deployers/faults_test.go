package deployers

import (
	"archive/tar"
	"bytes"
	"net/http"
	"regexp"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/deploy/pull"
	"dayone.dev/dayone/rebase/firstboot"
)

// fault is something between a node and its image. Where there is no heal, the registry's answers are put right.
type fault struct {
	name        string
	spoil, heal func(f *fixture)
	class       deploy.Class
	says        string // a regular expression
}

func answers(code int) func(f *fixture) {
	return func(f *fixture) { f.registry.Spoil(deploytest.Status(code)) }
}

func layersBecome(change func([]byte) []byte) func(f *fixture) {
	return func(f *fixture) { f.registry.Spoil(f.registry.ChangeLayers(change)) }
}

func (f *fixture) validFor(d time.Duration) { f.registry.SetValidity(f.t, time.Now().Add(d)) }

// validBetween makes a certificate that is valid some years from now: the clock of this machine, which is the node's,
// must not be set.
func validBetween(from, to int) func(f *fixture) {
	return func(f *fixture) {
		f.registry.SetWindow(f.t, time.Now().AddDate(from, 0, 0), time.Now().AddDate(to, 0, 0))
	}
}

func healClock(f *fixture) { f.validFor(time.Hour) }

// registryDown is the one fault that the listener has, not its answers.
const registryDown = "registry is down"

// reachFaults are what can be between a node and the registry; they come and go while the agent goes on trying.
func reachFaults() []fault {
	const clock = `current time 20.*next: set this node's clock`
	return []fault{
		{registryDown, func(f *fixture) { f.outlet.setDown(f.t) }, nil, deploy.ClassUnreachable, "connection refused"},
		{"registry answers 401", answers(401), nil, deploy.ClassUnauthorized, "next: check the pull credential"},
		{"registry answers 403", answers(403), nil, deploy.ClassForbidden, "next: allow this node's registry user"},
		{"registry answers 404", answers(404), nil, deploy.ClassNotFound, "next: check that the image was pushed"},
		{"registry answers 500", answers(500), nil, deploy.ClassRegistry, "next: look at the registry's log"},
		{"registry sends half an answer", halfAnswers, nil, deploy.ClassUnreachable,
			"next: check the network|next: check that the registry"},
		{"wrong CA", func(f *fixture) { f.put(caPath, 0o644, deploytest.NewAuthority(f.t).PEM) },
			func(f *fixture) { f.put(caPath, 0o644, f.registry.Authority.PEM) }, deploy.ClassUntrusted,
			"next: put the registry's CA"},
		{"certificate has expired", func(f *fixture) { f.validFor(-time.Hour) }, healClock, deploy.ClassExpired, clock},
		{"this node's clock is years behind", validBetween(4, 5), healClock, deploy.ClassExpired, clock},
		{"this node's clock is years ahead", validBetween(-5, -4), healClock, deploy.ClassExpired, clock},
		{"wrong password", func(f *fixture) {
			f.put(firstboot.PullAuthPath, 0o600, []byte(`{"auths":{"`+f.registry.Addr+`":{"auth":"YTpi"}}}`))
		},
			func(f *fixture) { f.put(firstboot.PullAuthPath, 0o600, f.pullAuth()) }, deploy.ClassUnauthorized,
			"next: check the pull credential"},
		// only the final name is left, and nobody resolves it
		{"DNS is gone", func(f *fixture) { f.put(firstboot.MirrorPath, 0o644, nil) },
			func(f *fixture) { f.put(firstboot.MirrorPath, 0o644, f.ignition(firstboot.MirrorPath)) }, deploy.ClassUnreachable,
			"lookup registry.invalid"},
		{"network is gone", func(f *fixture) { require.NoError(f.t, f.node.SetLink(f.t.Context(), false)) },
			func(f *fixture) { require.NoError(f.t, f.node.SetLink(f.t.Context(), true)) }, deploy.ClassUnreachable,
			"unreachable|no route"},
		{"corrupted layer", layersBecome(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }), nil, deploy.ClassCorrupted,
			"next: (repair the copy|push the image again)"},
		{"truncated layer", layersBecome(func(b []byte) []byte { return b[:len(b)-9] }), nil, deploy.ClassCorrupted,
			"next: (repair the copy|push the image again)"},
	}
}

// halfAnswers breaks the connection in the middle of an answer.
func halfAnswers(f *fixture) {
	f.registry.Spoil(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		panic(http.ErrAbortHandler)
	})
}

// waitFor waits until the agent has failed twice for a reason.
func (f *fixture) waitFor(class deploy.Class, says string) {
	f.t.Helper()
	pattern := regexp.MustCompile(says)
	f.until(string(class)+" "+says, func() bool {
		r := f.record()
		return r.State == firstboot.StateWaiting && r.Class == class && r.Attempts >= 2 && pattern.MatchString(r.Message)
	})
}

// newAttempt waits, while the registry is down, until an attempt runs that began after this call: it has read what the
// node's files say now.
func (f *fixture) newAttempt() {
	f.t.Helper()
	for range 2 {
		last := f.record().Updated
		f.until("another attempt", func() bool { return f.record().Updated.After(last) })
	}
}

// One node goes through all faults: between two of them the registry is down, so that it cannot slip through.
func TestNodeKeepsItsBaseOSDuringFaults(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs)
		f.outlet.setDown(t)
		f.start()
		require.NoError(t, f.node.WaitReady(t.Context()))
		for _, c := range reachFaults() {
			c.spoil(f)
			if c.name != registryDown {
				f.newAttempt()
				f.outlet.setUp(t)
			}
			t.Log(c.name)
			f.waitFor(c.class, c.says)
			assert.Zero(t, f.record().Reboots, c.name)
			f.outlet.setDown(t)
			if c.heal != nil {
				c.heal(f)
			}
			f.registry.Spoil(nil)
		}
		assert.Equal(t, 1, f.boots())
		second, err := f.node.Exec(t.Context(), firstboot.DaemonPath, "firstboot")
		require.NoError(t, err)
		assert.Equal(t, 1, second.ExitCode)
		assert.Contains(t, second.Stderr, firstboot.ErrBusy.Error(), "one agent at a time")

		f.registry.Spoil(f.registry.Slowly(20, 50*time.Millisecond)) // slow is no fault
		f.outlet.setUp(t)
		r := f.waitDone()
		assert.Equal(t, f.image, r.Booted)
		assert.Equal(t, 1, r.Reboots)
		assert.Equal(t, 2, f.boots())
		f.says("dayone-firstboot: this node stays on its present OS: ")
		assert.NotContains(t, f.log(), deploytest.Password)
		assert.NotContains(t, f.output("cat", firstboot.StateDir+"/status.json", firstboot.StateDir+"/log"),
			deploytest.Password)
	})
}

// refusal is an image, or a config with it, that a node must not boot.
type refusal struct {
	name  string
	image func(f *fixture) v1.Image
	serve change // default: image is what is served
	undo  change
	class deploy.Class
	says  string
	only  deploy.Kind // default: all
}

func with(entries ...deploytest.Entry) func(f *fixture) v1.Image {
	return func(f *fixture) v1.Image { return f.layered(entries...) }
}

func without(labels ...string) func(f *fixture) v1.Image {
	return func(f *fixture) v1.Image {
		return f.edit(f.layered(), func(c *v1.ConfigFile) {
			for _, l := range labels {
				delete(c.Config.Labels, l)
			}
		})
	}
}

func refusals() []refusal {
	return []refusal{
		{name: "of another architecture", image: func(f *fixture) v1.Image {
			return f.edit(f.layered(), func(c *v1.ConfigFile) { c.Architecture = "s390x" })
		}, class: deploy.ClassArchitecture, says: "s390x"},
		{name: "without the bootable label", image: without(pull.LabelBootc, pull.LabelOSTreeBootable),
			class: deploy.ClassNotBootable, says: "ostree.bootable"},
		{name: "without a kernel", image: with(deploytest.Entry{Name: "usr/lib/.wh.modules"}), class: deploy.ClassNoKernel,
			says: "(?i)kernel|vmlinuz"},
		{name: "built from another config", image: func(f *fixture) v1.Image {
			return f.edit(f.layered(),
				func(c *v1.ConfigFile) { c.Config.Labels[firstboot.LabelConfigHash] = "sha256:0123456789abcdef" })
		}, class: deploy.ClassUnlike, says: "this node's config is"},
		{name: "that says nothing of its config", image: without(firstboot.LabelConfigHash), class: deploy.ClassUnlike,
			says: "no label " + firstboot.LabelConfigHash},
		{name: "with a path that leaves it", image: with(deploytest.Entry{Name: "usr/../../escape", Body: "x"}),
			class: deploy.ClassHostile, says: "leaves the image|Invalid path"},
		{name: "with a path through an absolute link", image: with(deploytest.Entry{Name: "usr/out", Link: "/etc"},
			deploytest.Entry{Name: "usr/out/passwd", Body: "x"}),
			class: deploy.ClassHostile, says: "usr/out|replace file with directory: out"},
		{name: "with a hard link out of it", image: with(deploytest.Entry{Name: "usr/shadow", Link: "../../../../etc/shadow",
			Type: tar.TypeLink}), class: deploy.ClassHostile, says: "shadow",
			only: deploy.KindOSTree}, // what the others say is not known
		{name: "with a kernel of another type", serve: func(f *fixture) {
			f.served.Spec.KernelType = "realtime"
			f.served.Spec.OSImageURL = f.push(f.layered())
		}, undo: func(f *fixture) { f.served.Spec.KernelType = "" }, class: deploy.ClassUnlike,
			says: "kernel .* is not of the config's type realtime; next: put that kernel into the image"},
		{name: "by a tag", serve: func(f *fixture) { f.served.Spec.OSImageURL = repository + ":latest" },
			class: deploy.ClassConfig, says: "digest"},
		{name: "for a node with FIPS", serve: func(f *fixture) {
			f.served.Spec.FIPS = true
			f.served.Spec.OSImageURL = f.push(f.layered())
		}, undo: func(f *fixture) { f.served.Spec.FIPS = false }, class: deploy.ClassConfig, says: "fips=1"},
		{name: "with a file where this node has a directory",
			image: with(deploytest.Entry{Name: "etc/dayone", Body: "a file\n"}),
			class: deploy.ClassEtcConflict, says: "/etc/dayone.*next: move the local one"},
		{name: "that the policy does not allow", serve: func(f *fixture) {
			f.put("/etc/dayone/policy.json", 0o644, []byte(`{"default":[{"type":"reject"}]}`))
			f.config.SignaturePolicy = "/etc/dayone/policy.json"
			f.put(firstboot.ConfigPath, 0o644, f.ignition(firstboot.ConfigPath))
			f.served.Spec.OSImageURL = f.push(f.layered())
		}, undo: func(f *fixture) {
			f.put("/etc/dayone/policy.json", 0o644,
				[]byte(`{"default":[{"type":"reject"}],
					"transports":{"docker":{"registry.invalid/ocp":[{"type":"insecureAcceptAnything"}]}}}`))
		}, class: deploy.ClassUnsigned, says: "rejects it by its default.*next: add the scope registry.invalid/ocp"},
	}
}

// harmless are entries that look hostile and stay what they are: text, mode, nothing.
func harmless() []deploytest.Entry {
	return []deploytest.Entry{{Name: "usr/absolute", Link: "/../../etc/shadow"},
		{Name: "etc/outside", Link: "/proc/1/root"}, {Name: "etc/setuid", Body: "#!/bin/sh\n", Mode: 0o4755},
		{Name: "usr/device", Type: tar.TypeBlock, Mode: 0o666}, {Name: "usr/fifo", Type: tar.TypeFifo},
		{Name: "dev/sda", Type: tar.TypeBlock, Mode: 0o666}, {Name: "run/x", Body: "x"}}
}

// One node is given all the images one after the other, and the right one in the end.
func TestImageThatANodeMustNotBootIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, kind deploy.Kind, programs []string) {
		f := newFixture(t, kind, programs, func(f *fixture) {
			f.served.Spec.OSImageURL = repository + "@sha256:" + string(bytes.Repeat([]byte("0"), 64))
		})
		f.start()
		require.NoError(t, f.node.WaitReady(t.Context()))
		for _, c := range refusals() {
			if c.only != "" && c.only != kind {
				continue
			}
			if c.serve == nil {
				c.serve = func(f *fixture) { f.served.Spec.OSImageURL = f.push(c.image(f)) }
			}
			c.serve(f)
			f.serve()
			t.Log("image " + c.name)
			f.waitFor(c.class, c.says)
			assert.Zero(t, f.record().Reboots, c.name)
			assert.NotContains(t, f.output("ostree", "admin", "status"), "(staged)", c.name)
			if c.undo != nil {
				c.undo(f)
			}
		}
		assert.Equal(t, 1, f.boots())
		f.served.Spec.OSImageURL = f.push(f.layered(harmless()...))
		f.serve()
		r := f.waitDone()
		require.NoError(t, f.node.WaitBoot(t.Context(), 2))
		assert.Equal(t, f.served.Spec.OSImageURL, r.Booted)
		assert.Equal(t, "/../../etc/shadow /proc/1/root 4755:0",
			f.output("sh", "-c", "echo $(readlink /usr/absolute; readlink /etc/outside; stat -c %a:%u /etc/setuid)"))
		gone, err := f.node.Exec(t.Context(), "sh", "-c", "ls -d /usr/device /usr/fifo /dev/sda /run/x")
		require.NoError(t, err)
		assert.Empty(t, gone.Stdout, "neither special files nor what is below /dev and /run")
	})
}

// kernelPath is where the stock images have their kernel; ostree copies it to /boot.
const kernelPath = "usr/lib/modules/" + baseimage.KernelVersion + "/vmlinuz"

// soon are pauses that a test does not notice.
func soon(ms int) installconfig.Duration {
	return installconfig.Duration(time.Duration(ms) * time.Millisecond)
}
