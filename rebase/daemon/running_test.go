package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/nodestate"
)

// line is the way to the API, which can be cut.
type line struct {
	daemon.Cluster
	cut atomic.Bool
	// configs is cut where only the configs cannot be read.
	configs atomic.Bool
}

var errCut = fmt.Errorf("%w: dial tcp: connection refused", kubeapi.ErrNoAnswer)

func (l *line) Node(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	if l.cut.Load() {
		return nil, errCut
	}
	return l.Cluster.Node(ctx)
}

func (l *line) PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error) {
	if l.cut.Load() {
		return nil, errCut
	}
	return l.Cluster.PatchNode(ctx, patch)
}

func (l *line) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	if l.configs.Load() {
		return nil, errCut
	}
	return l.Cluster.Config(ctx, name)
}

// through makes the fixture's agent anew, with a line that can be cut and whatever else a test wants.
func (f *fixture) through(change func(*daemon.Options)) *line {
	f.Helper()
	l := &line{Cluster: f.api()}
	o := daemon.Options{Node: f.name, Cluster: l, Deployer: f.m, Services: f.m, Root: f.m.root, BootID: f.m.BootID}
	if change != nil {
		change(&o)
	}
	a, err := daemon.New(o)
	require.NoError(f, err)
	f.agent = a
	return l
}

func TestWhatWasBegunIsFinishedWhileTheAPIIsAway(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-away-1", "/etc/a=1"), image(1))
	l := f.through(nil)
	f.aim(rendered("rendered-away-2", "/etc/a=2"), image(2))
	for f.m.staged == "" {
		require.NoError(t, f.step())
	}
	l.cut.Store(true)
	for range limit {
		_, err := f.agent.Step(t.Context())
		if f.m.rebooting {
			f.m.boot(t)
			l = f.through(nil)
			l.cut.Store(true)
		}
		if errors.Is(err, errCut) {
			break
		}
	}
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, image(2), f.m.booted)
	assert.NotEqual(t, image(2), f.record().CurrentImage, "nobody could be told")
	l.cut.Store(false)
	f.settle()
	assert.Equal(t, 1, f.m.boots, "it is not done again")
	assert.Equal(t, image(2), f.record().CurrentImage)
}

func TestANodeIsNotDegradedByAnAPIThatGoesAwayInAStep(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-blip-1", "/etc/a=1"), image(1))
	l := f.through(nil)
	f.aim(rendered("rendered-blip-2", "/etc/a=2"), image(2))
	l.configs.Store(true)
	var err error
	for range limit {
		if _, err = f.agent.Step(t.Context()); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, errCut)
	require.ErrorContains(t, err, "the API does not answer")
	assert.NotEqual(t, nodestate.StateDegraded, f.record().State)
	assert.Empty(t, f.record().Reason)
	for f.record().State != nodestate.StateDegraded { // it lasts: pauses double up to a minute
		_, err = f.agent.Step(t.Context())
		require.ErrorIs(t, err, errCut)
	}
	assert.Contains(t, f.record().Reason, "the API does not answer")
	l.configs.Store(false)
	f.settle()
	assert.Equal(t, image(2), f.record().CurrentImage)
}

func TestNothingIsBegunWhileTheAPIIsAway(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-nothing-1", "/etc/a=1"), image(1))
	l := f.through(nil)
	l.cut.Store(true)
	for range 5 {
		_, err := f.agent.Step(t.Context())
		require.NoError(t, err, "an idle node needs no API")
	}
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("other"), 0o644))
	_, err := f.agent.Step(t.Context())
	require.ErrorContains(t, err, "drift")
	recorder := httptest.NewRecorder()
	f.agent.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{"dayone_agent_api_away 1\n", "dayone_agent_drifted_files 1\n",
		"dayone_agent_degraded 1\n", `dayone_agent_state{state="Idle"} 1` + "\n"} {
		assert.Contains(t, recorder.Body.String(), want)
	}
}

// running lets the fixture's agent run, and waits until it has looked once.
func (f *fixture) running(repair bool) (end func()) {
	t := f.T
	ctx, cancel := context.WithCancel(t.Context())
	f.through(func(o *daemon.Options) {
		if api, ok := f.api().(*kubeapi.Client); ok {
			o.Wake = api.Wake(ctx)
		}
		o.RepairDrift = repair
	})
	over := make(chan error, 1)
	agent := f.agent
	go func() { over <- agent.Run(ctx) }()
	require.Eventually(t, func() bool {
		recorder := httptest.NewRecorder()
		agent.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
		return !strings.Contains(recorder.Body.String(), "dayone_agent_steps_total 0\n")
	}, time.Minute, 10*time.Millisecond)
	return func() {
		cancel()
		require.NoError(t, <-over)
	}
}

// TestWakesForItsRecord: an agent at rest looks at its node every few minutes only, unless a watch wakes it.
func TestWakesForItsRecord(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-wakes-1"), "")
	end := f.running(false)
	f.annotate(manifests.AnnotationCurrentConfig, "")
	require.Eventually(t, func() bool { return f.record().CurrentConfig == "rendered-wakes-1" }, time.Minute,
		10*time.Millisecond)
	end()
}

func TestKeysThatGoAreDrift(t *testing.T) {
	f := newFixture(t)
	at := f.core()
	const one, two = "ssh-ed25519 AAA one", "ssh-ed25519 BBB two"
	f.join(rendered("rendered-driftkeys-1"), "")
	f.aim(withKeys(rendered("rendered-driftkeys-2"), one, two), "")
	f.settle()
	complains := func() bool {
		r := f.record()
		assert.NotContains(t, r.Reason, "AAA", "nobody is told the keys")
		return r.State == nodestate.StateDegraded && strings.Contains(r.Reason, at+" lacks an SSH key")
	}
	content := func() bool { return f.record().State == nodestate.StateDone }
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(f.m.root, at), []byte(text), 0o600))
	}
	end := f.running(false)
	write(one + "\n")
	require.Eventually(t, complains, time.Minute, 10*time.Millisecond)
	write(one + "\n" + two + "\n")
	require.Eventually(t, content, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.RemoveAll(filepath.Join(f.m.root, "home/core/.ssh")))
	require.Eventually(t, complains, time.Minute, 10*time.Millisecond)
	end()
	end = f.running(true)
	require.Eventually(t, func() bool { return content() && f.read(at) == one+"\n"+two+"\n" }, time.Minute,
		10*time.Millisecond)
	write("")
	require.Eventually(t, func() bool { return f.read(at) == one+"\n"+two+"\n" }, time.Minute, 10*time.Millisecond)
	end()
	assert.Empty(t, f.m.calls)
}

func TestDriftIsNoticedAtOnceAndMendedWhereAskedFor(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-noticed-1", "/etc/deep/er/a=1"), image(1))
	end := f.running(false)
	require.NoError(t, os.RemoveAll(filepath.Join(f.m.root, "/etc/deep")))
	require.Eventually(t, func() bool { return strings.Contains(f.record().Reason, "/etc/deep/er/a is missing") },
		time.Minute, 10*time.Millisecond)
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	end()
	end = f.running(true)
	require.Eventually(t, func() bool {
		return f.record().
			State == nodestate.StateDone && f.read("/etc/deep/er/a") == "1"
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.Chmod(filepath.Join(f.m.root, "/etc/deep/er/a"), 0o600))
	require.Eventually(t, func() bool {
		info, err := os.Stat(filepath.Join(f.m.root, "/etc/deep/er/a"))
		return err == nil && info.Mode() == 0o644
	}, time.Minute, 10*time.Millisecond)
	end()
}

func TestAnotherDeploymentThanTheNodesIsReported(t *testing.T) {
	f := newFixture(t)
	mc := rendered("rendered-menu-1", "/etc/a=1")
	mc.Spec.KernelArguments = []string{"quiet"}
	f.join(mc, image(1))
	f.m.arguments = []string{"loud"}
	require.ErrorContains(t, f.step(), "without the kernel arguments quiet")
	f.m.booted, f.m.arguments = image(7), []string{"quiet"}
	require.ErrorContains(t, f.step(), "not its image")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	f.m.booted = image(1)
	f.settle()
}

func TestKilledBetweenNotingAndAskingForTheReboot(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-asking-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-asking-2", "/etc/a=2"), image(2))
	for !f.m.rebooting {
		_, err := f.agent.Step(t.Context())
		require.NoError(t, err)
		_, err = f.drain.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: f.name}})
		require.NoError(t, err)
	}
	f.m.rebooting = false // The kill came first.
	f.restart()
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, image(2), f.m.booted)
}
