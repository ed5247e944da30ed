package daemon_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

func TestOptionsThatAreRequired(t *testing.T) {
	all := daemon.Options{Node: "n", Cluster: playedAPI{}, Deployer: &machine{}}
	_, err := daemon.New(all)
	require.NoError(t, err)
	for name, leave := range map[string]func(*daemon.Options){
		"node": func(o *daemon.Options) { o.Node = "" }, "cluster": func(o *daemon.Options) { o.Cluster = nil },
		"deployer": func(o *daemon.Options) { o.Deployer = nil },
	} {
		o := all
		leave(&o)
		_, err := daemon.New(o)
		assert.ErrorContains(t, err, "are required", name)
	}
}

// What would fail only at the shutdown is a failure of staging: the node does not reboot.
func TestWhatIsStagedIsLookedAt(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-looked-1", "/etc/a=1"), image(1))
	looks, bad := 0, errors.New("the image's /etc has a device")
	f.through(func(o *daemon.Options) { o.CheckStaged = func(context.Context) error { looks++; return bad } })
	f.aim(rendered("rendered-looked-2", "/etc/a=2"), image(2))
	require.ErrorIs(t, f.fails(), bad)
	assert.Equal(t, 1, looks)
	assert.Contains(t, f.record().Reason, bad.Error())
	assert.Zero(t, f.m.boots)
	f.m.refuse = errors.New("no room")
	require.ErrorContains(t, f.fails(), "no room")
	assert.Equal(t, 1, looks, "nothing is staged")
	f.m.refuse, bad = nil, nil
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
}

// Nothing is taken back where nothing is staged: that would be a transaction of the OS for nothing.
func TestNothingIsTakenBack(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-back-1", "/etc/containers/policy.json=1"), "")
	f.aim(rendered("rendered-back-2", "/etc/containers/policy.json=2"), "")
	f.settle()
	assert.NotContains(t, f.m.calls, "unstage")
}

// What former plans brought onto the node has to be known before another one begins.
func TestPendingConfigThatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-begun-1", "/etc/a=1"), "")
	file := filepath.Join(f.m.root, nodedisk.PendingPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	f.aim(rendered("rendered-begun-2", "/etc/a=2"), "")
	require.ErrorContains(t, f.fails(), "read pending config")
	assert.Equal(t, "1", f.read("/etc/a"))
	require.NoError(t, os.Remove(file))
	f.settle()
	assert.Equal(t, "2", f.read("/etc/a"))
}

// The hand-over asks each node to end its trust in the bootstrap registry, and waits for the answer.
func TestTrustInTheBootstrapRegistryEnds(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-ended-1", "/etc/a=1"), image(1))
	mirror := filepath.Join(f.m.root, firstboot.MirrorPath)
	put := func() {
		require.NoError(t, os.MkdirAll(filepath.Dir(mirror), 0o755))
		require.NoError(t, os.WriteFile(mirror, []byte("x"), 0o600))
	}
	put()
	require.NoError(t, f.step())
	assert.FileExists(t, mirror, "nobody has asked")
	const registry = "192.0.2.1:5000"
	f.annotate(manifests.AnnotationEndTrust, registry)
	require.NoError(t, f.step())
	assert.NoFileExists(t, mirror)
	assert.Equal(t, registry, f.object().Annotations[manifests.AnnotationTrustEnded])
	put()
	require.NoError(t, f.step())
	assert.FileExists(t, mirror, "it was asked for once")

	require.NoError(t, os.Remove(mirror))
	require.NoError(t, os.MkdirAll(filepath.Join(mirror, "in the way"), 0o755))
	f.annotate(manifests.AnnotationEndTrust, "192.0.2.2:5000")
	require.ErrorContains(t, f.fails(), "end trust in the bootstrap registry")
	assert.Equal(t, registry, f.object().Annotations[manifests.AnnotationTrustEnded], "it has not ended")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
}

// What is repaired is no failure of the step that repairs it.
func TestRepairedDriftIsNoFailure(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-repaired-1", "/etc/a=1"), image(1))
	f.through(func(o *daemon.Options) { o.RepairDrift = true })
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("local"), 0o644))
	_, err := f.agent.Step(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "1", f.read("/etc/a"))
	_, value := f.metric("dayone_agent_drifted_files ")
	assert.Equal(t, "0", value)
}

// A pod counts as ready once its agent has read the node, and goes on to do so while the API is away.
func TestReadyOnceTheNodeIsRead(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-ready-1", "/etc/a=1"), image(1))
	l := f.through(nil)
	ready := func() int {
		recorder := httptest.NewRecorder()
		f.agent.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return recorder.Code
	}
	step := func(cut bool) error {
		l.cut.Store(cut)
		_, err := f.agent.Step(t.Context())
		return err
	}
	assert.Equal(t, http.StatusServiceUnavailable, ready())
	require.NoError(t, step(true))
	assert.Equal(t, http.StatusServiceUnavailable, ready(), "an idle node needs no API, and has not been read")
	require.NoError(t, step(false))
	assert.Equal(t, http.StatusOK, ready())
	require.NoError(t, step(true))
	assert.Equal(t, http.StatusOK, ready())
}

// Each metric of the agent is there from the beginning: an alert on one that is absent would never fire.
func TestMetricsAreThereFromTheBeginning(t *testing.T) {
	f := newFixture(t)
	text := f.metrics()
	for _, name := range []string{"degraded", "api_away", "drifted_files", "steps_total", "step_failures_total", "reboots",
		"layer_bytes", "layer_bytes_wanted", "ahead_layer_bytes", "ahead_layer_bytes_wanted"} {
		assert.Contains(t, text, "\ndayone_agent_"+name+" 0\n")
		assert.Contains(t, text, "# HELP dayone_agent_"+name+" ")
	}
	assert.Contains(t, text, "# TYPE dayone_agent_state gauge\n")
	assert.Contains(t, text, "\nmcd_", "and MCD's")
}

// spoiled is an API of which some requests fail.
type spoiled struct {
	daemon.Cluster
	policies, controller, config, event error
}

func (s *spoiled) Event(ctx context.Context, e kubeapi.Event) error {
	if s.event != nil {
		return s.event
	}
	return s.Cluster.Event(ctx, e)
}

func (s *spoiled) Policies(ctx context.Context) (*opv1.MachineConfiguration, error) {
	if s.policies != nil {
		return nil, s.policies
	}
	return s.Cluster.Policies(ctx)
}

func (s *spoiled) ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error) {
	if s.controller != nil {
		return nil, s.controller
	}
	return s.Cluster.ControllerConfig(ctx)
}

func (s *spoiled) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	if s.config != nil {
		return nil, s.config
	}
	return s.Cluster.Config(ctx, name)
}

// A plan that lacks one of its inputs is not made: what is not known may be what drains or reboots the node.
func TestPlanWithoutAnInput(t *testing.T) {
	bad := errors.New("forbidden")
	for _, c := range []struct {
		name  string
		spoil func(f *fixture, s *spoiled) (mend func())
		says  string
	}{
		{"policies", func(_ *fixture, s *spoiled) func() { s.policies = bad; return func() { s.policies = nil } },
			"forbidden"},
		{"controller", func(_ *fixture, s *spoiled) func() { s.controller = bad; return func() { s.controller = nil } },
			"forbidden"},
		{"configs", func(_ *fixture, s *spoiled) func() { s.config = bad; return func() { s.config = nil } }, "forbidden"},
		{"force", func(f *fixture, _ *spoiled) func() {
			file := filepath.Join(f.m.root, daemon.ForcePath)
			require.NoError(f, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(f, os.Symlink(filepath.Base(file), file))
			return func() { require.NoError(f, os.Remove(file)) }
		}, "look for " + daemon.ForcePath},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			prefix := "rendered-input-" + c.name
			f.join(rendered(prefix+"-1", "/etc/a=1"), image(1))
			var s *spoiled
			f.through(func(o *daemon.Options) {
				s = &spoiled{Cluster: f.api()}
				o.Cluster = s
			})
			mend := c.spoil(f, s)
			f.aim(rendered(prefix+"-2", "/etc/a=2"), image(2))
			for range 3 {
				require.ErrorContains(t, f.fails(), c.says)
			}
			assert.Empty(t, f.m.calls)
			assert.Empty(t, f.record().DesiredDrain, "no pod has to leave")
			mend()
			f.settle()
			assert.Equal(t, image(2), f.m.booted)
		})
	}
}

// The config that the node has may be gone from the API: what it has is on its disk.
func TestConfigOfTheNodeIsGoneFromTheAPI(t *testing.T) {
	f := newFixture(t)
	first := rendered("rendered-gone-1", "/etc/a=1")
	f.join(first, image(1))
	gone := first.DeepCopy()
	gone.ResourceVersion = ""
	require.NoError(t, f.env.Client.Delete(t.Context(), gone))
	f.aim(rendered("rendered-gone-2", "/etc/a=2"), image(2))
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
}

// late is a machine that takes its time to reboot.
type late struct {
	*machine
	asked int
}

func (l *late) Reboot(context.Context) error { l.asked++; return nil }

// One process asks for a reboot once. The next one cannot know that it was asked for, and asks once more.
func TestARebootThatTakesItsTimeIsAskedForOnce(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-late-1", "/etc/a=1"), image(1))
	l := &late{machine: f.m}
	f.through(func(o *daemon.Options) { o.Deployer = l })
	f.aim(rendered("rendered-late-2", "/etc/a=2"), image(2))
	f.reaches(daemon.Rebooting)
	for range 4 {
		require.NoError(t, f.step())
	}
	assert.Equal(t, 1, l.asked)
	f.through(func(o *daemon.Options) { o.Deployer = l })
	for range 4 {
		require.NoError(t, f.step())
	}
	assert.Equal(t, 2, l.asked)
}

// What a power cut took is staged again, and the node does not reboot while that fails.
func TestStagingAgainThatFails(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-again-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-again-2", "/etc/a=2"), image(2))
	f.reaches(daemon.Rebooting)
	f.powerCut()
	f.m.refuse = errors.New("no room")
	require.ErrorContains(t, f.fails(), "no room")
	boots := f.m.boots
	require.ErrorContains(t, f.fails(), "no room")
	assert.Equal(t, boots, f.m.boots)
	f.m.refuse = nil
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
}

// The node's own file comes back when no config has its path any more, and the copy of it goes: kept, it would replace
// what the owner writes there later.
func TestOwnFileComesBackOnce(t *testing.T) {
	const path = "/etc/containers/policy.json"
	f := newFixture(t)
	f.join(rendered("rendered-own-1", "/etc/a=1"), "")
	write := func(text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(f.m.root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(f.m.root, path), []byte(text), 0o644))
	}
	write("own")
	with := func(n string) { f.aim(rendered("rendered-own-"+n, "/etc/a=1", path+"="+n), ""); f.settle() }
	without := func(n string) { f.aim(rendered("rendered-own-"+n, "/etc/a=1"), ""); f.settle() }
	with("2")
	assert.Equal(t, "2", f.read(path))
	without("3")
	assert.Equal(t, "own", f.read(path))
	write("newer")
	with("4")
	without("5")
	assert.Equal(t, "newer", f.read(path))
}

// An event that could not be made is made with the next look.
func TestEventThatCannotBeMadeOnce(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-event-1", "/etc/a=1"), image(1))
	s := &spoiled{Cluster: f.api(), event: errors.New("quota")}
	f.through(func(o *daemon.Options) { o.Cluster = s })
	f.reasons()
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("local"), 0o644))
	require.ErrorContains(t, f.step(), "drift")
	assert.Empty(t, f.reasons())
	s.event = nil
	require.ErrorContains(t, f.step(), "drift")
	assert.NotEmpty(t, f.reasons())
	require.ErrorContains(t, f.step(), "drift")
	assert.Empty(t, f.reasons(), "one that was made is not made again")
}
