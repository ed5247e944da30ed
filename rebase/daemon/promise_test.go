package daemon_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// promise writes what the node controller tells a node beside its target.
func (f *fixture) promise(from, to *mcfgv1.MachineConfig, image string, change disruption.ImageChange) {
	f.Helper()
	policies, err := disruption.Defaults()
	require.NoError(f, err)
	plan, err := disruption.Effect(disruption.Input{Old: from, New: to, Layered: image != "", Image: change,
		Policies: policies})
	require.NoError(f, err)
	text, err := disruption.Promise{Config: to.Name, Image: image, Hash: plan.Hash(), Level: plan.Level,
		Change: change}.Encode()
	require.NoError(f, err)
	n := f.object()
	was := n.DeepCopy()
	n.Annotations[manifests.AnnotationPlan] = text
	require.NoError(f, f.env.Client.Patch(f.Context(), n, client.MergeFrom(was)))
}

func TestAConfigOnlyImageIsAppliedLiveAndWaitsForTheNextReboot(t *testing.T) {
	f := newFixture(t)
	const path = "/etc/containers/policy.json"
	first, second := rendered("rendered-live-1", path+"=1"), rendered("rendered-live-2", path+"=2")
	f.join(first, image(1))
	f.promise(first, second, image(2), disruption.ImageConfig)
	f.aim(second, image(2))
	f.settle()
	assert.Zero(t, f.m.boots)
	assert.Equal(t, "2", f.read(path), "the running system has it")
	assert.Equal(t, image(1), f.m.booted)
	assert.Equal(t, image(2), f.m.staged, "the next boot has it, too")
	assert.Equal(t, []string{"stage +[] -[]", "reload crio.service"}, f.m.calls)
	assert.Equal(t, image(2), f.record().CurrentImage)

	f.m.staged = "" // a power cut loses what is staged
	f.restart()
	require.NoError(t, f.step())
	f.settle()
	for range 6 {
		require.NoError(t, f.step())
	}
	assert.Equal(t, image(2), f.m.staged, "it is staged again")
	assert.Zero(t, f.m.boots)
	assert.Equal(t, nodestate.StateDone, f.record().State)

	third := rendered("rendered-live-3", path+"=3")
	f.promise(second, third, image(3), disruption.ImageConfig)
	f.aim(third, image(3))
	f.settle()
	assert.Equal(t, image(3), f.m.staged, "a later image takes the place of one that never booted")
	assert.Equal(t, "3", f.read(path))
	f.m.rebooting = true
	f.m.boot(t)
	f.restart()
	f.settle()
	assert.Equal(t, image(3), f.m.booted)
	assert.Equal(t, "3", f.read(path))
}

func TestAnotherPlanThanTheToldOneStopsTheNode(t *testing.T) {
	f := newFixture(t)
	first, second := rendered("rendered-changed-1", "/etc/containers/policy.json=1"),
		rendered("rendered-changed-2", "/etc/containers/policy.json=2", "/etc/a=1")
	f.join(first, "")
	f.promise(first, rendered(second.Name, "/etc/containers/policy.json=2"), "", disruption.ImageSame)
	f.aim(second, "")
	require.ErrorIs(t, f.fails(), disruption.ErrPlanChanged)
	assert.Contains(t, f.record().Reason, "the node was promised Reload, and it would be Reboot now")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	assert.Equal(t, "1", f.read("/etc/containers/policy.json"), "nothing was done")
	assert.False(t, f.object().Spec.Unschedulable)
	f.promise(first, second, "", disruption.ImageSame)
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, "1", f.read("/etc/a"))
}

func TestAnImageThatIsNotKnownToDifferInItsConfigOnlyReboots(t *testing.T) {
	f := newFixture(t)
	first, second := rendered("rendered-content-1", "/etc/containers/policy.json=1"),
		rendered("rendered-content-2", "/etc/containers/policy.json=2")
	f.join(first, image(1))
	f.promise(first, second, image(2), disruption.ImageContent)
	f.aim(second, image(2))
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, image(2), f.m.booted)
}
