package disruption_test

import (
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/rebase/disruption"
)

func storage(change func(*ign35.Storage)) part {
	return func(_ *mcfgv1.MachineConfig, c *ign35.Config) { change(&c.Storage) }
}

// TestStorageOfNewNodesAlone holds the table of MCO: an override lets its own section change and no other.
func TestStorageOfNewNodesAlone(t *testing.T) {
	disks := storage(func(s *ign35.Storage) { s.Disks = []ign35.Disk{{Device: "/dev/sdb"}} })
	filesystems := storage(func(s *ign35.Storage) {
		s.Filesystems = []ign35.Filesystem{{Device: "/dev/sdb1", Format: new("xfs")}}
	})
	raid := storage(func(s *ign35.Storage) {
		s.Raid = []ign35.Raid{{Name: "data", Level: new("raid1"), Devices: []ign35.Device{"/dev/sdb"}}}
	})
	luks := storage(func(s *ign35.Storage) { s.Luks = []ign35.Luks{{Name: "data", Device: new("/dev/sdb1")}} })
	const (
		allDisks   = opv1.IrreconcilableValidationOverridesStorageDisks
		allSystems = opv1.IrreconcilableValidationOverridesStorageFileSystems
		allRaid    = opv1.IrreconcilableValidationOverridesStorageRaid
	)
	for _, c := range []struct {
		name    string
		allowed []opv1.IrreconcilableValidationOverridesStorage
		change  []part
		level   disruption.Level
	}{
		{"nothing allowed", nil, []part{disks}, disruption.LevelImpossible},
		{"disks", []opv1.IrreconcilableValidationOverridesStorage{allDisks}, []part{disks}, disruption.LevelQuiet},
		{"file systems", []opv1.IrreconcilableValidationOverridesStorage{allSystems}, []part{filesystems},
			disruption.LevelQuiet},
		{"arrays", []opv1.IrreconcilableValidationOverridesStorage{allRaid}, []part{raid}, disruption.LevelQuiet},
		{"another section", []opv1.IrreconcilableValidationOverridesStorage{allDisks, allRaid},
			[]part{disks, filesystems}, disruption.LevelImpossible},
		{"encryption has no override", []opv1.IrreconcilableValidationOverridesStorage{allDisks, allSystems, allRaid},
			[]part{luks}, disruption.LevelImpossible},
		{"a file beside it", []opv1.IrreconcilableValidationOverridesStorage{allDisks},
			[]part{disks, file("/etc/a", "1")}, disruption.LevelReboot},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := &opv1.MachineConfiguration{}
			object.Spec.IrreconcilableValidationOverrides.Storage = c.allowed
			settings, err := disruption.Read(object)
			require.NoError(t, err)
			plan, err := disruption.Effect(disruption.Input{Old: mc(), New: mc(c.change...), Policies: settings.Policies})
			require.NoError(t, err)
			assert.Equal(t, c.level, plan.Level, "%+v", plan)
			assert.Len(t, plan.Changes, len(c.change))
		})
	}
}

// TestSettingsWithoutEffect names every field of the MachineConfiguration that dayone has no part in, and no other.
func TestSettingsWithoutEffect(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*opv1.MachineConfigurationSpec)
		want string
	}{
		{"what the API fills in", func(s *opv1.MachineConfigurationSpec) {
			s.ManagementState, s.LogLevel, s.OperatorLogLevel = opv1.Managed, opv1.Normal, opv1.Normal
			s.ObservedConfig.Raw = []byte("null")
		}, ""},
		{"the operator's log level, which holds", func(s *opv1.MachineConfigurationSpec) { s.OperatorLogLevel = opv1.Trace },
			""},
		{"boot images", func(s *opv1.MachineConfigurationSpec) {
			s.ManagedBootImages.MachineManagers = []opv1.MachineManager{{Resource: opv1.MachineSets}}
		}, "spec.managedBootImages"},
		{"their age", func(s *opv1.MachineConfigurationSpec) {
			s.BootImageSkewEnforcement.Mode = opv1.BootImageSkewEnforcementConfigModeNone
		}, "spec.bootImageSkewEnforcement"},
		{"not managed", func(s *opv1.MachineConfigurationSpec) { s.ManagementState = opv1.Unmanaged },
			"spec.managementState"},
		{"the nodes' log level, too", func(s *opv1.MachineConfigurationSpec) { s.LogLevel = opv1.Debug }, ""},
		{"redeployment", func(s *opv1.MachineConfigurationSpec) { s.ForceRedeploymentReason = "now" },
			"spec.forceRedeploymentReason"},
		{"failed revisions", func(s *opv1.MachineConfigurationSpec) { s.FailedRevisionLimit = 1 },
			"spec.failedRevisionLimit"},
		{"revisions", func(s *opv1.MachineConfigurationSpec) { s.SucceededRevisionLimit = -1 },
			"spec.succeededRevisionLimit"},
		{"overrides of a config", func(s *opv1.MachineConfigurationSpec) {
			s.UnsupportedConfigOverrides = runtime.RawExtension{Raw: []byte(`{"a":1}`)}
		}, "spec.unsupportedConfigOverrides"},
		{"an observed config", func(s *opv1.MachineConfigurationSpec) {
			s.ObservedConfig = runtime.RawExtension{Raw: []byte(`{"a":1}`)}
		}, "spec.observedConfig"},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := &opv1.MachineConfiguration{}
			c.set(&object.Spec)
			settings, err := disruption.Read(object)
			require.NoError(t, err)
			if c.want == "" {
				assert.Empty(t, settings.WithoutEffect)
				return
			}
			require.Len(t, settings.WithoutEffect, 1)
			assert.Contains(t, settings.WithoutEffect[0], c.want+" has no effect: ")
		})
	}
}
