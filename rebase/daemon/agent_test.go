package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/daemon/hostfiles"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

func TestIntroducesItself(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-introduces-1", "/etc/a=1"), image(1))
	r := f.record()
	assert.Equal(t, "rendered-introduces-1", r.CurrentConfig)
	assert.Equal(t, image(1), r.CurrentImage)
	assert.Equal(t, nodestate.StateDone, r.State)
	assert.Zero(t, f.m.boots)
}

// TestMendsItsRecord has somebody remove, or write nonsense into, what the agent reports: at rest and on the way.
func TestMendsItsRecord(t *testing.T) {
	for _, c := range []struct{ name, key, value string }{
		{"unknown-state", manifests.AnnotationState, "Garbage"},
		{"no-state", manifests.AnnotationState, ""},
		{"no-config", manifests.AnnotationCurrentConfig, ""},
		{"unreadable-image", manifests.AnnotationCurrentImage, "not an image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.join(rendered("rendered-"+f.name+"-1", "/etc/a=1"), image(1))
			was := f.record()
			f.annotate(c.key, c.value)
			f.mends()
			assert.Equal(t, was, f.record())
			f.aim(rendered("rendered-"+f.name+"-2", "/etc/a=2"), image(2))
			f.reaches(daemon.Draining)
			f.annotate(c.key, c.value)
			f.mends()
			f.settle()
			assert.Equal(t, 1, f.m.boots)
			assert.Equal(t, was.FirstPivotConfig, f.record().FirstPivotConfig, "it is written once")
		})
	}
}

// mends lets the agent go on until its record can be read and says what it has.
func (f *fixture) mends() {
	f.Helper()
	for range limit {
		require.NoError(f, f.step())
		if r, err := nodestate.Parse(f.object().Annotations); err == nil && r.State != "" && r.CurrentConfig != "" &&
			r.CurrentImage != "" {
			return
		}
	}
	f.Fatalf("the record stays broken: %v", f.object().Annotations)
}

func TestLayeredImageChange(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-layered-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-layered-2", "/etc/a=2", "/etc/b=2"), image(2))
	f.settle()
	assert.Equal(t, 1, f.m.boots, "one reboot")
	assert.Equal(t, image(2), f.m.booted)
	assert.Equal(t, "2", f.read("/etc/a"))
	assert.False(t, f.object().Spec.Unschedulable, "pods may come again")
	assert.Equal(t, nodestate.DrainRequest(nodestate.Uncordon, "rendered-layered-2"), f.record().LastAppliedDrain)
	current, err := nodedisk.ReadCurrent(f.m.root)
	require.NoError(t, err)
	assert.Equal(t, image(2), current.Image)
	assert.NoFileExists(t, filepath.Join(f.m.root, nodedisk.PendingPath))
}

func TestPlainFilesAndActions(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-plain-1", "/etc/containers/policy.json=1", "/etc/kubernetes/credential-providers/a=1"), "")
	f.aim(rendered("rendered-plain-2", "/etc/containers/policy.json=2"), "")
	f.settle()
	assert.Zero(t, f.m.boots)
	assert.Equal(t, []string{"reload crio.service", "restart kubelet.service"}, f.m.calls, "as the changes follow")
	assert.Equal(t, "2", f.read("/etc/containers/policy.json"))
	assert.Equal(t, "(none)", f.read("/etc/kubernetes/credential-providers/a"))
	assert.Empty(t, f.record().DesiredDrain, "nothing was drained")
}

func TestUnitsAreEnabledAndDisabled(t *testing.T) {
	f := newFixture(t)
	withUnits := func(name string, units ...ign35.Unit) *mcfgv1.MachineConfig {
		mc := rendered(name)
		raw, err := machineconfig.Encode(ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version},
			Systemd: ign35.Systemd{Units: units}})
		require.NoError(t, err)
		mc.Spec.Config.Raw = raw
		return mc
	}
	link := filepath.Join(f.m.root, "/etc/systemd/system/multi-user.target.wants/old.service")
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(t, os.Symlink("/etc/systemd/system/old.service", link))
	f.join(withUnits("rendered-units-1", ign35.Unit{Name: "old.service", Enabled: new(true)},
		ign35.Unit{Name: "same.service", Enabled: new(true)}), "")
	f.aim(withUnits("rendered-units-2", ign35.Unit{Name: "new.service", Enabled: new(true)},
		ign35.Unit{Name: "same.service", Enabled: new(true)}), "")
	f.settle()
	assert.Equal(t, []string{"--no-reload enable new.service"}, f.m.calls)
	_, err := os.Lstat(link)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestPlainRebootForFiles(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-files-1", "/etc/a=1"), "")
	f.aim(rendered("rendered-files-2", "/etc/a=2"), "")
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, "2", f.read("/etc/a"))
}

func TestKernelArgumentsAreADeployment(t *testing.T) {
	f := newFixture(t)
	first := rendered("rendered-kargs-1")
	first.Spec.KernelArguments = []string{"a", "b"}
	f.join(first, image(1))
	second := rendered("rendered-kargs-2")
	second.Spec.KernelArguments = []string{"b", "c"}
	f.aim(second, image(1))
	f.settle()
	assert.Equal(t, []string{"stage +[b c] -[a]"}, f.m.calls)
	assert.Equal(t, 1, f.m.boots)
}

func TestKernelArgumentsThatAPlanBroughtGoWithIt(t *testing.T) {
	f := newFixture(t)
	with := func(name string, arguments ...string) *mcfgv1.MachineConfig {
		mc := rendered(name)
		mc.Spec.KernelArguments = arguments
		return mc
	}
	f.m.extra = []string{"root=x"}
	f.join(with("rendered-former-1", "a", "b"), image(1))
	f.through(func(o *daemon.Options) { o.Healthy = func(context.Context) error { return errors.New("not ready") } })
	f.aim(with("rendered-former-2", "b", "c d"), image(2))
	for i := 0; f.m.boots == 0; i++ {
		require.Less(t, i, limit)
		require.NoError(t, f.step())
	}
	f.through(func(o *daemon.Options) { o.Healthy = func(context.Context) error { return errors.New("not ready") } })
	require.ErrorContains(t, f.fails(), "not ready")
	require.Equal(t, []string{"root=x", "b", "c d"}, f.m.arguments)
	f.restart()
	f.aim(with("rendered-former-3", "a", "d"), image(2))
	f.settle()
	assert.Equal(t, []string{"root=x", "a", "d"}, f.m.arguments)
	assert.Equal(t, 2, f.m.boots)
}

func TestOptOutIsOneReboot(t *testing.T) {
	f := newFixture(t)
	mc := rendered("rendered-out-1", "/etc/a=1")
	mc.Spec.OSImageURL = image(9)
	f.join(mc, image(1))
	f.aim(mc, "")
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, image(9), f.m.booted, "the base OS")
	assert.Equal(t, "1", f.read("/etc/a"), "the plain file was carried along")
	info, err := os.Stat(filepath.Join(f.m.root, "/etc/a"))
	require.NoError(t, err)
	assert.Zero(t, info.Mode()&os.ModeSticky, "and its mark taken off")
	assert.Empty(t, f.record().CurrentImage)
	assert.NoFileExists(t, filepath.Join(f.m.root, nodedisk.Dir, "currentimage"))
}

func TestPowerCutBeforeFinalizing(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-cut-1", "/etc/a=1"), image(1))
	f.m.loseStaged = 1
	f.aim(rendered("rendered-cut-2", "/etc/a=2"), image(2))
	f.settle()
	assert.Equal(t, 2, f.m.boots, "the lost reboot is made up for once")
	assert.Equal(t, image(2), f.m.booted)
}

func TestPowerCutBeforeTheRebootIsAskedFor(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-early-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-early-2", "/etc/a=2"), image(2))
	f.reaches(daemon.Rebooting)
	require.Equal(t, image(2), f.m.staged)
	f.powerCut()
	f.settle()
	assert.Equal(t, 2, f.m.boots, "the power cut's and one that leads to the image")
	assert.Equal(t, image(2), f.m.booted)
}

func TestAPowerCutIsAsGoodAsTheRebootThatFilesNeed(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-files-1", "/etc/a=1"), "")
	f.aim(rendered("rendered-files-2", "/etc/a=2"), "")
	f.reaches(daemon.Rebooting)
	f.powerCut()
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, "2", f.read("/etc/a"))
}

func TestLostKernelArgumentsAreMadeUpFor(t *testing.T) {
	f := newFixture(t)
	first := rendered("rendered-lost-kargs-1")
	first.Spec.KernelArguments = []string{"a", "b"}
	f.join(first, image(1))
	f.m.loseStaged = 1
	second := rendered("rendered-lost-kargs-2")
	second.Spec.KernelArguments = []string{"b", "c"}
	f.aim(second, image(1))
	f.settle()
	assert.Equal(t, []string{"b", "c"}, f.m.arguments, "the same image, another deployment")
	assert.Equal(t, 2, f.m.boots)
}

func TestImageThatNeverBootsIsReportedAndReplaced(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-never-1", "/etc/a=1"), image(1))
	f.m.loseStaged = 2
	f.aim(rendered("rendered-never-2", "/etc/a=2"), image(2))
	require.ErrorContains(t, f.fails(), "did not come up")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	assert.Contains(t, f.record().Reason, "did not come up")
	assert.Equal(t, 2, f.m.boots, "no reboot loop")
	f.aim(rendered("rendered-never-3", "/etc/a=3"), image(3))
	f.settle()
	assert.Equal(t, image(3), f.m.booted)
	assert.Empty(t, f.record().Reason)
}

func TestFailureIsReportedAndRetried(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-retry-1"), image(1))
	f.m.refuse = errors.New("registry says 401")
	f.aim(rendered("rendered-retry-2"), image(2))
	require.ErrorContains(t, f.fails(), "401")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	assert.Contains(t, f.record().Reason, "401")
	f.m.refuse = nil
	f.restart()
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
}

func TestTargetTakenBackBeforeTheReboot(t *testing.T) {
	f := newFixture(t)
	first := rendered("rendered-back-1", "/etc/containers/policy.json=1")
	f.join(first, "")
	f.m.refuse = errors.New("registry gone")
	second := rendered("rendered-back-2", "/etc/containers/policy.json=2", "/etc/new=2")
	second.Spec.OSImageURL = image(2)
	f.aim(second, "")
	require.Error(t, f.fails())
	require.Equal(t, "2", f.read("/etc/new"), "files had been written when the image failed")
	f.aim(first, "")
	f.settle()
	assert.Equal(t, "(none)", f.read("/etc/new"), "what the failed plan brought is gone")
	assert.Equal(t, "1", f.read("/etc/containers/policy.json"))
	assert.False(t, f.object().Spec.Unschedulable)
}

func TestWhatCannotBeApplied(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-cannot-1"), "")
	bad := rendered("rendered-cannot-2")
	bad.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/sdb"}]}}`)
	f.aim(bad, "")
	require.ErrorContains(t, f.fails(), "disks")
	assert.Equal(t, nodestate.StateUnreconcilable, f.record().State)
	f.aim(rendered("rendered-cannot-1"), "")
	f.settle()
}

func TestStorageThatOnlyNewNodesGet(t *testing.T) {
	f := newFixture(t)
	allowed := opv1.IrreconcilableValidationOverrides{Storage: []opv1.IrreconcilableValidationOverridesStorage{
		opv1.IrreconcilableValidationOverridesStorageDisks}}
	f.create(&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: opv1.MachineConfigurationSpec{IrreconcilableValidationOverrides: allowed,
			StaticPodOperatorSpec: opv1.StaticPodOperatorSpec{OperatorSpec: opv1.OperatorSpec{ManagementState: opv1.Managed}},
			NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{SSHKey: opv1.NodeDisruptionPolicySpecSSHKey{
				Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}}}}})
	f.create(&mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: f.name}, Spec: mcfgv1.MachineConfigNodeSpec{
		Node: mcfgv1.MCOObjectReference{Name: f.name}, Pool: mcfgv1.MCOObjectReference{Name: "worker"},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-new-nodes-1"}}})
	f.join(rendered("rendered-new-nodes-1"), "")
	require.NoError(t, f.step())
	assert.Empty(t, f.nodeRecord().Status.IrreconcilableChanges)
	disk := rendered("rendered-new-nodes-2")
	disk.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/sdb"}]}}`)
	f.aim(disk, "")
	f.settle()
	assert.Zero(t, f.m.boots)
	assert.Equal(t, "rendered-new-nodes-2", f.record().CurrentConfig)
	f.restart()
	require.NoError(t, f.step())
	changes := f.nodeRecord().Status.IrreconcilableChanges
	require.Len(t, changes, 1, "its MachineConfigNode says what it does without")
	assert.Equal(t, "spec.config.storage.disks", changes[0].FieldPath)
	assert.Contains(t, changes[0].Diff, "/dev/sdb")
}

func TestDriftIsReportedAndGoes(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-drift-1", "/etc/a=1"), image(1))
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, "/etc/a"), []byte("local edit"), 0o644))
	require.ErrorContains(t, f.step(), "/etc/a has 10 bytes, not 1")
	assert.Equal(t, nodestate.StateDegraded, f.record().State)
	assert.NotContains(t, f.record().Reason, "local edit")
	require.NoError(t, hostfiles.Host{Root: f.m.root}.Restore(parse(t, rendered("x", "/etc/a=1"))))
	f.settle()
}

func TestAdminsPolicyHolds(t *testing.T) {
	f := newFixture(t)
	f.create(&opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: opv1.MachineConfigurationSpec{
			StaticPodOperatorSpec: opv1.StaticPodOperatorSpec{OperatorSpec: opv1.OperatorSpec{ManagementState: opv1.Managed}},
			NodeDisruptionPolicy: opv1.NodeDisruptionPolicyConfig{
				SSHKey: opv1.NodeDisruptionPolicySpecSSHKey{
					Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}},
				},
				Files: []opv1.NodeDisruptionPolicySpecFile{
					{Path: "/etc/a", Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.DrainSpecAction},
						{Type: opv1.RestartSpecAction, Restart: &opv1.RestartService{ServiceName: "a.service"}}}}},
			}}})
	f.join(rendered("rendered-policy-1", "/etc/a=1"), "")
	f.aim(rendered("rendered-policy-2", "/etc/a=2"), "")
	f.settle()
	assert.Zero(t, f.m.boots)
	assert.Equal(t, []string{"restart a.service"}, f.m.calls)
	assert.Equal(t, nodestate.DrainRequest(nodestate.Uncordon, "rendered-policy-2"), f.record().
		LastAppliedDrain, "it was drained")
}

// TestCrashAnywhere kills the agent after each number of steps; it must come to the same end.
func TestCrashAnywhere(t *testing.T) {
	f := newFixture(t)
	mc := rendered("rendered-crash-0", "/etc/a=0")
	f.join(mc, image(1))
	for i := 1; i <= 12; i++ {
		f.aim(rendered("rendered-crash-"+string(rune('a'+i)), "/etc/a="+string(rune('a'+i))), image(i+1))
		for range i {
			_ = f.step()
		}
		f.restart()
		before := f.m.boots
		f.settle()
		assert.LessOrEqual(t, f.m.boots-before, 1)
		assert.Equal(t, image(i+1), f.m.booted)
	}
	assert.Equal(t, 12, f.m.boots, "one reboot for each image, wherever the agent was killed")
}

func TestJournalSpoiledByAPowerCut(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-journal-1", "/etc/a=1"), image(1))
	f.aim(rendered("rendered-journal-2", "/etc/a=2"), image(2))
	require.NoError(t, f.step())
	require.NoError(t, os.WriteFile(filepath.Join(f.m.root, daemon.JournalPath), []byte(`{"sta`), 0o600))
	f.restart()
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
}
