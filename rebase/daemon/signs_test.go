package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// hostLog stands in for the journal of a host, which hack/e2e/wholesystem has: entries of logins in their order, and
// the complaint of the last finalization.
type hostLog struct {
	mu       sync.Mutex
	finalize string
	logins   []string
	more     chan struct{}
	afters   []string
}

func newHostLog() *hostLog { return &hostLog{more: make(chan struct{}, 100)} }

func (h *hostLog) FinalizeFailure(context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.finalize, nil
}

func (h *hostLog) add(cursor string) {
	h.mu.Lock()
	h.logins = append(h.logins, cursor)
	h.mu.Unlock()
	h.more <- struct{}{}
}

func (h *hostLog) Logins(ctx context.Context, after string, found func(string)) error {
	h.mu.Lock()
	h.afters = append(h.afters, after)
	at := 0
	for i, cursor := range h.logins {
		if cursor == after {
			at = i + 1
		}
	}
	h.mu.Unlock()
	for ctx.Err() == nil {
		h.mu.Lock()
		for ; at < len(h.logins); at++ {
			found(h.logins[at])
		}
		h.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-h.more:
		}
	}
	return nil
}

func TestALoginMarksTheNodeOnceForEach(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-login-1", "/etc/a=1"), image(1))
	log := newHostLog()
	run := func() (end func()) {
		f.through(func(o *daemon.Options) { o.HostJournal = log })
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		agent := f.agent
		go func() { over <- agent.Run(ctx) }()
		return func() {
			cancel()
			require.NoError(t, <-over)
		}
	}
	marked := func() bool { return f.object().Annotations["machineconfiguration.openshift.io/ssh"] == "accessed" }
	noted := func(cursor string) func() bool {
		return func() bool { return f.read("/var/lib/dayone/daemon/logins") == cursor }
	}
	end := run()
	log.add("one")
	require.Eventually(t, marked, time.Minute, 10*time.Millisecond)
	require.Eventually(t, noted("one"), time.Minute, 10*time.Millisecond)
	end()

	// Somebody has seen it. Another process of the agent tells of no login twice.
	n := f.object()
	was := n.DeepCopy()
	delete(n.Annotations, manifests.AnnotationSSH)
	require.NoError(t, f.env.Client.Patch(t.Context(), n, client.MergeFrom(was)))
	_, err := f.agent.Step(t.Context())
	require.NoError(t, err)
	assert.False(t, marked(), "nor does the same one")
	end = run()
	require.Eventually(t, func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return len(log.afters) == 2
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, []string{"", "one"}, log.afters)
	assert.False(t, marked())
	log.add("two")
	require.Eventually(t, marked, time.Minute, 10*time.Millisecond)
	require.Eventually(t, noted("two"), time.Minute, 10*time.Millisecond)
	end()
}

func TestAFailedFinalizationIsOnTheNodeUntilOneGoesWell(t *testing.T) {
	const key = "machineconfiguration.openshift.io/ostree-finalize-staged-failure"
	f := newFixture(t)
	f.join(rendered("rendered-finalize-1", "/etc/a=1"), image(1))
	log := newHostLog()
	log.finalize = "error: opendir(boot): No space left"
	boot := func() { f.through(func(o *daemon.Options) { o.HostJournal = log }) }
	for range 3 { // it is told once, whoever looks
		boot()
		require.NoError(t, f.step())
	}
	assert.Equal(t, log.finalize, f.object().Annotations[key])
	assert.Equal(t, 1, f.reasons()["FailedFinalization"])

	f.aim(rendered("rendered-finalize-2", "/etc/a=2"), image(2))
	f.m.loseStaged = 2
	for range limit {
		boot()
		if err := f.step(); err != nil {
			require.ErrorContains(t, err, "did not come up with "+image(2))
			require.ErrorContains(t, err, log.finalize, "the failure names its cause")
			break
		}
	}
	require.Equal(t, nodestate.StateDegraded, f.record().State)

	log.finalize = ""
	boot()
	_ = f.step()
	assert.NotContains(t, f.object().Annotations, key)
}

func TestTheNodeSaysWhichControllerConfigItFollows(t *testing.T) {
	const version, rotated = "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion",
		"machineconfiguration.openshift.io/lastObservedServerCAAnnotation"
	f := newFixture(t)
	f.controllerConfig(deploytest.NewAuthority(t).PEM)
	cc := &mcfgv1.ControllerConfig{}
	cc.Name = render.ControllerConfigName
	rotate := func(value string) {
		require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(cc), cc))
		was := cc.DeepCopy()
		if cc.Annotations == nil {
			cc.Annotations = map[string]string{}
		}
		cc.Annotations["machineconfiguration.openshift.io/service-ca-rotate"] = value
		require.NoError(t, f.env.Client.Patch(t.Context(), cc, client.MergeFrom(was)))
	}
	rotate("false")
	f.join(rendered("rendered-follows-1", "/etc/a=1"), image(1))
	require.NoError(t, f.step())
	assert.Equal(t, cc.ResourceVersion, f.object().Annotations[version])
	assert.Equal(t, "false", f.object().Annotations[rotated])
	rotate("true")
	require.NoError(t, f.step())
	assert.Equal(t, cc.ResourceVersion, f.object().Annotations[version])
	assert.Equal(t, "false", f.object().Annotations[rotated], "kubelet's own CA is not this agent's work")
}

func (f *fixture) force() {
	f.Helper()
	at := filepath.Join(f.m.root, "run/machine-config-daemon-force")
	require.NoError(f, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(f, os.WriteFile(at, nil, 0o600))
}

func TestAForcedUpdateMendsANodeThatHasDrifted(t *testing.T) {
	for _, c := range []struct{ name, image string }{{"plain", ""}, {"layered", image(1)}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.join(rendered("rendered-forced-1", "/etc/a=1"), c.image)
			require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("local"), 0o644))
			require.ErrorContains(t, f.step(), "drift")
			f.reasons()
			f.force()
			f.settle()
			assert.Equal(t, 1, f.m.boots, "one reboot")
			assert.Equal(t, "1", f.read("/etc/a"))
			assert.Equal(t, "(none)", f.read("/run/machine-config-daemon-force"), "it counts once")
			assert.NotContains(t, f.object().Annotations, manifests.AnnotationForced)
			got := f.reasons()
			assert.Equal(t, 1, got["ForcedUpdate"])
			assert.Equal(t, 1, got["Drain"])
			assert.Equal(t, 1, got["Reboot"])
			for range 3 {
				require.NoError(t, f.step())
			}
			assert.Equal(t, 1, f.m.boots)
		})
	}
}

func TestAForcedUpdateDoesMoreThanPromisedAndSaysSoBefore(t *testing.T) {
	f := newFixture(t)
	const path = "/etc/containers/policy.json"
	first, second := rendered("rendered-more-1", path+"=1"), rendered("rendered-more-2", path+"=2")
	f.join(first, "")
	f.promise(first, second, "", disruption.ImageSame)
	f.force()
	f.aim(second, "")
	f.reaches(daemon.Draining)
	said := f.object().Annotations[manifests.AnnotationForced]
	assert.Contains(t, said, "/run/machine-config-daemon-force asks for all of ")
	assert.Contains(t, said, "it was promised Reload")
	assert.Equal(t, "1", f.read(path), "nothing is done yet")
	assert.Zero(t, f.m.boots)
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, "2", f.read(path))
	assert.NotContains(t, f.object().Annotations, manifests.AnnotationForced)
}

func TestAForcedUpdateIsOneRebootWhereverTheAgentIsKilled(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-kills-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-kills-2", "/etc/a=2"), image(2))
	f.force()
	for range limit {
		f.restart()
		require.NoError(t, f.step())
		if f.record().Converged() {
			break
		}
	}
	require.True(t, f.record().Converged())
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, image(2), f.m.booted)
	f.restart()
	require.NoError(t, f.step())
	assert.Equal(t, 1, f.m.boots)
}

func TestAForcedUpdateForgivesNoImpossibleChange(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-forgives-1"), "")
	bad := rendered("rendered-forgives-2")
	bad.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/sdb"}]}}`)
	f.force()
	f.aim(bad, "")
	require.ErrorContains(t, f.fails(), "disks")
	assert.Zero(t, f.m.boots)
}
