package standalone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	emptyindex "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
)

// childOrder says what the child does and when it dies.
type childOrder struct {
	Dir, State, Base string
	// Source, CA and Auth reach the base image in a registry instead of the directory Base.
	Source, CA, Auth string
	Registry, Config string
	Kill             phasetest.Kill
}

func TestMain(m *testing.M) {
	if !phasetest.Child(child) {
		os.Exit(m.Run())
	}
}

// child runs the bootstrap until it serves, then ends, or kills itself where it was told to.
func child(o childOrder) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if o.Source == "" {
		o.Source = "oci:" + o.Base
	}
	return standalone.Run(ctx, standalone.Options{
		Options: day1.Options{Dir: o.Dir, StateDir: o.State, BaseCAFile: o.CA, Platform: "linux/amd64",
			NewEngine: phasetest.Engine, Log: logrus.NewEntry(logrus.New()), BuildProgress: o.Kill.Build,
			Observe: o.Kill.Observer(func(e journal.Event) {
				if e.Record.Name == "serve" && e.Kind == journal.EventRecorded {
					cancel()
				}
			})},
		BaseSource: o.Source, BaseAuthFile: o.Auth, DaemonBinary: self, RegistryBinary: self,
		RegistryListen: o.Registry, ConfigListen: o.Config,
		Versions: render.Versions{Raw: "test", Hash: "test", Payload: "test"},
	})
}

// bench is an install directory and a state directory for children.
type bench struct {
	t     *testing.T
	order childOrder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	phasetest.NeedsBuilds(t)
	base, err := baseimage.Ensure(t.Context(), baseimage.Shell, "")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	registry, config := phasetest.FreePort(t), phasetest.FreePort(t)
	file := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "host: 192.168.77.1\n    port: 5000",
		"host: "+phasetest.HostAddress(t)+"\n    port: "+strconv.Itoa(registry), 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return &bench{t: t, order: childOrder{Dir: dir, State: filepath.Join(t.TempDir(), "state"), Base: base,
		Registry: fmt.Sprintf("%s:%d", phasetest.HostAddress(t), registry), Config: fmt.Sprintf("127.0.0.1:%d", config)}}
}

// run starts a child and returns its events as "phase kind".
func (b *bench) run(killPhase, killAt string) (events []string, output string, err error) {
	b.t.Helper()
	o := b.order
	o.Kill = phasetest.Kill{Phase: killPhase, At: killAt}
	e := phasetest.Start(b.t, o)()
	return e.Events, e.Log, e.Err
}

func (b *bench) journal() *journal.Journal {
	b.t.Helper()
	j, err := journal.Open(b.order.State)
	require.NoError(b.t, err)
	return j
}

func TestResumeAfterKillInEveryPhase(t *testing.T) {
	b := newBench(t)
	phases := []string{"identity", "registry", "base", "render-first", "build-master", "render-final", "serve"}
	durable := map[string]bool{"base": true, "build-master": true, "render-final": true}
	var finished []string
	for _, phase := range phases {
		moments := []string{"started", "ran", "recorded"}
		if phase == "build-master" {
			moments = []string{"started", "instruction", "ran", "recorded"}
		}
		for _, moment := range moments {
			if phase == "serve" && moment == "recorded" {
				continue // then it is done
			}
			events, output, err := b.run(phase, moment)
			require.Error(t, err, "%s %s: the child must die: %v", phase, moment, events)
			require.ErrorContains(t, err, "killed", "%s %s: %s", phase, moment, output)
			for _, done := range finished {
				assert.Contains(t, events, done+" reused", "%s was done before the kill at %s %s", done, phase, moment)
			}
		}
		if durable[phase] {
			finished = append(finished, phase)
		}
	}
	events, output, err := b.run("", "")
	require.NoError(t, err, output)
	assert.Equal(t, []string{"base reused", "build-master reused", "render-final reused"},
		phasetest.Ended{Events: events}.Only("reused"))

	j := b.journal()
	require.NotNil(t, j.Endpoints)
	assert.FileExists(t, standalone.PointerFile(b.order.State, "master"))
	assert.Empty(t, mountsBelow(t, b.order.State), "no mount outlives the killed builds")
}

func TestResumeWithOtherInputs(t *testing.T) {
	b := newBench(t)
	_, output, err := b.run("", "")
	require.NoError(t, err, output)
	first := b.journal()

	file := filepath.Join(b.order.Dir, "openshift/10-master-motd.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(raw, []byte("A%20master"), []byte("Another%20master"), 1), 0o600))
	events, output, err := b.run("", "")
	require.NoError(t, err, output)
	assert.Equal(t, []string{"base reused"}, phasetest.Ended{Events: events}.Only("reused"))
	assert.NotEqual(t, string(first.Find("render-final").Output), string(b.journal().Find("render-final").Output))
}

// The images are the same, the nodes and the hand-over come to another address.
func TestResumeWithAnotherHost(t *testing.T) {
	b := newBench(t)
	_, output, err := b.run("", "")
	require.NoError(t, err, output)
	other := phasetest.FreePort(t)
	file := filepath.Join(b.order.Dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	_, was, _ := strings.Cut(b.order.Registry, ":")
	require.NoError(t, os.WriteFile(file, bytes.Replace(raw, []byte("port: "+was), []byte("port: "+strconv.Itoa(other)),
		1), 0o600))
	b.order.Registry = fmt.Sprintf("%s:%d", phasetest.HostAddress(t), other)
	_, output, err = b.run("", "")
	require.NoError(t, err, output)
	plan, err := handover.Read(day1.Options{StateDir: b.order.State}.PlanDir())
	require.NoError(t, err)
	assert.Equal(t, b.order.Registry, plan.Registry)
}

func TestResumeRestoresLostBlob(t *testing.T) {
	b := newBench(t)
	_, output, err := b.run("", "")
	require.NoError(t, err, output)
	var built build.Result
	require.NoError(t, json.Unmarshal(b.journal().Find("build-master").Output, &built))
	last := strings.TrimPrefix(built.Layers[len(built.Layers)-1].Digest, "sha256:")
	blob := filepath.Join(b.order.State, "registry/docker/registry/v2/blobs/sha256", last[:2], last, "data")
	require.NoError(t, os.Remove(blob))
	events, output, err := b.run("", "")
	require.NoError(t, err, output)
	assert.Equal(t, []string{"base reused", "render-final reused"}, phasetest.Ended{Events: events}.Only("reused"))
	assert.FileExists(t, blob)
}

func TestRunRetriesFailedBuild(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.order.Dir, "layering/master.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	broken := bytes.Replace(raw, []byte("RUN GREETING"), []byte("RUN echo about-to-fail && exit 7 && GREETING"), 1)
	require.NoError(t, os.WriteFile(file, broken, 0o600))
	_, output, err := b.run("", "")
	require.Error(t, err)
	for _, want := range []string{"base image is ready for the build", "phase build-master", "RUN", "7"} {
		assert.Contains(t, output, want)
	}
	assert.Contains(t, b.journal().Find("build-master").Error, "RUN")

	require.NoError(t, os.WriteFile(file, raw, 0o600))
	events, output, err := b.run("", "")
	require.NoError(t, err, output)
	assert.Contains(t, events, "base reused")
}

func TestRunRefusesTakenPort(t *testing.T) {
	b := newBench(t)
	taken, err := net.Listen("tcp", b.order.Config)
	require.NoError(t, err)
	_, output, err := b.run("", "")
	require.Error(t, err)
	assert.Contains(t, output, "cannot listen on "+b.order.Config)
	require.NoError(t, taken.Close())
	assert.NoFileExists(t, filepath.Join(b.order.State, journal.File), "nothing was started")
}

func TestRunRefusesUnbootableBase(t *testing.T) {
	b := newBench(t)
	empty, err := random.Image(64, 1)
	require.NoError(t, err)
	application, err := mutate.Config(empty, v1.Config{Labels: map[string]string{"app": "web"}})
	require.NoError(t, err)
	elsewhere, err := application.ConfigFile()
	require.NoError(t, err)
	elsewhere = elsewhere.DeepCopy()
	elsewhere.Architecture, elsewhere.OS = "s390x", "linux"
	elsewhere.Config.Labels = map[string]string{"containers.bootc": "1"}
	foreign, err := mutate.ConfigFile(application, elsewhere)
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		image v1.Image
		says  string
	}{{"an application image", application, "base-not-bootable"}, {"an image for other machines", foreign,
		"base-platform"}, {"no image at all", nil, "read base image"}} {
		t.Run(c.name, func(t *testing.T) {
			b.order.Base = filepath.Join(t.TempDir(), "layout")
			if c.image != nil {
				l, err := layout.Write(b.order.Base, emptyindex.Index)
				require.NoError(t, err)
				require.NoError(t, l.AppendImage(c.image))
			}
			_, output, err := b.run("", "")
			require.Error(t, err)
			assert.Contains(t, output, c.says)
			assert.NoFileExists(t, filepath.Join(b.order.State, journal.File), "nothing was started")
		})
	}
}

// TestBaseImageByTheWordsOfInstallConfig reads the base image with no option but install-config.yaml's.
func TestBaseImageByTheWordsOfInstallConfig(t *testing.T) {
	b := newBench(t)
	reg := registrytest.Start(t)
	b.order.Source = buildtest.Push(t, reg, buildtest.Base{Fixed: true}).Reference
	ca, err := os.ReadFile(reg.CAFile)
	require.NoError(t, err)
	auth, err := os.ReadFile(reg.PullAuthFile)
	require.NoError(t, err)
	file := filepath.Join(b.order.Dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, _ := strings.Cut(string(raw), "pullSecret:")
	bundle := "additionalTrustBundlePolicy: Always\nadditionalTrustBundle: |\n  " +
		strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n  ") + "\n"
	for _, c := range []struct{ name, settings, says string }{
		{"nothing", "pullSecret:" + rest, "x509"},
		{"a trust bundle", bundle + "pullSecret:" + rest, "unauthorized"},
		{"a trust bundle and a pull secret", bundle + "pullSecret: '" + strings.TrimSpace(string(auth)) + "'\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(before+c.settings), 0o600))
			events, output, err := b.run("base", string(journal.EventRecorded))
			require.Error(t, err)
			if c.says == "" {
				assert.Contains(t, events, "base "+string(journal.EventRecorded), output)
			} else {
				assert.Contains(t, output, c.says)
			}
		})
	}
}

func TestRunRefusesWithoutRoot(t *testing.T) {
	b := newBench(t)
	raw, err := json.Marshal(b.order)
	require.NoError(t, err)
	// The child must be able to execute this program: a copy where everybody may.
	program := filepath.Join(os.TempDir(), "dayone-test-"+strconv.Itoa(os.Getpid()))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, self, 0o755))
	t.Cleanup(func() { assert.NoError(t, os.Remove(program)) })
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), phasetest.ChildEnv+"="+string(raw))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "needs root")
	assert.NoDirExists(t, b.order.State)
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	var out []string
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.Contains(line, dir) {
			out = append(out, line)
		}
	}
	return out
}
