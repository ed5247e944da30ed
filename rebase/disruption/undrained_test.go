package disruption_test

import (
	"fmt"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests/postconfig"
	"dayone.dev/dayone/rebase/disruption"
)

// TestASingleNodeIsNotDrained compares a way's plan in a cluster whose control plane is one node with that in others.
func TestASingleNodeIsNotDrained(t *testing.T) {
	assert.True(t, disruption.Undrained(configv1.SingleReplicaTopologyMode))
	for _, other := range []configv1.TopologyMode{"", configv1.HighlyAvailableTopologyMode,
		configv1.DualReplicaTopologyMode, configv1.HighlyAvailableArbiterMode, configv1.ExternalTopologyMode} {
		assert.False(t, disruption.Undrained(other), other)
	}
	config := func(name, file, argument string) *mcfgv1.MachineConfig {
		raw := fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":%q,"mode":420,`+
			`"contents":{"source":"data:,%s"}}]}}`, file, name)
		return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigSpec{
			KernelArguments: []string{argument}, Config: runtime.RawExtension{Raw: []byte(raw)}}}
	}
	drains := disruption.Policies{Files: []disruption.Rule{{Name: "/etc/d", Actions: []disruption.Action{
		{Type: postconfig.Drain}, {Type: postconfig.Restart, Service: "a.service"}}},
		{Name: "/etc/e", Actions: []disruption.Action{{Type: postconfig.Drain}}}}}
	for _, c := range []struct {
		name, file, argument string
		steps, kept          int
		was, is              disruption.Level
	}{
		{"reboot", "/etc/d", "b", 2, 1, disruption.LevelReboot, disruption.LevelReboot},
		{"drain and restart", "/etc/d", "a", 2, 1, disruption.LevelDrain, disruption.LevelReload},
		{"drain", "/etc/e", "a", 1, 0, disruption.LevelDrain, disruption.LevelQuiet},
	} {
		for _, actor := range []disruption.Actor{disruption.ActorDayone, disruption.ActorMCO} {
			t.Run(c.name+" "+string(actor), func(t *testing.T) {
				way := disruption.Way{From: config("one", c.file, "a"), To: config("two", c.file, c.argument)}
				s := disruption.Settings{Actor: actor, Policies: drains}
				with, err := disruption.Effect(way.Input(s))
				require.NoError(t, err)
				s.Undrained = true
				without, err := disruption.Effect(way.Input(s))
				require.NoError(t, err)
				assert.Len(t, with.Steps, c.steps)
				assert.Len(t, without.Steps, c.kept)
				assert.NotContains(t, without.Steps, disruption.Action{Type: disruption.Drain})
				assert.Equal(t, []disruption.Level{c.was, c.is}, []disruption.Level{with.Level, without.Level})
				assert.Equal(t, with.Changes, without.Changes)
				assert.ElementsMatch(t, without.Steps, disruption.Join(without, without).Steps)
			})
		}
	}
}
