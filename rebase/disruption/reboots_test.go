package disruption

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/softreboot"
	"dayone.dev/dayone/rebase/target"
)

func TestForeseenReboots(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy softreboot.Policy
		actor  Actor
		change func(*mcfgv1.MachineConfig)
		image  string
		want   string
	}{
		{name: "no policy", image: "2", want: ""},
		{name: "hard", policy: softreboot.Hard, image: "2", want: ""},
		{name: "another image", policy: softreboot.SoftIfPossible, image: "2",
			want: "soft (likely) if the image keeps kernel and initramfs"},
		{name: "kernel arguments", policy: softreboot.SoftRequired, image: "2",
			change: func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"a"} },
			want:   "hard: kernelArguments of the config change"},
		{name: "FIPS and kernel type", policy: softreboot.SoftIfPossible, image: "2",
			change: func(mc *mcfgv1.MachineConfig) { mc.Spec.FIPS, mc.Spec.KernelType = true, "realtime" },
			want:   "hard: fips, kernelType of the config change"},
		{name: "MCO", policy: softreboot.SoftIfPossible, actor: ActorMCO, image: "2",
			want: "hard: MCO's daemon reboots the node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := &mcfgv1.MachineConfig{}
			old.Name = "rendered-1"
			old.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
			mc := old.DeepCopy()
			mc.Name = "rendered-2"
			if c.change != nil {
				c.change(mc)
			}
			configs := map[string]*mcfgv1.MachineConfig{old.Name: old, mc.Name: mc}
			policies, err := Defaults()
			require.NoError(t, err)
			has := target.Target{Config: old.Name, Image: "r.example.com/os@sha256:1"}
			got, err := ForPool(map[string]target.Target{"a": has}, Foresight{Reboot: c.policy,
				Target:   target.Target{Config: mc.Name, Image: "r.example.com/os@sha256:" + c.image},
				Settings: Settings{Policies: policies, Actor: c.actor},
				Config:   func(name string) (*mcfgv1.MachineConfig, error) { return configs[name], nil }})
			require.NoError(t, err)
			w, found := got.Plan.Transition(has)
			require.True(t, found)
			assert.Equal(t, c.want, w.Reboot)
			assert.Equal(t, c.policy != "" && c.policy != softreboot.Hard, got.Plan.Promise(w).Reboot != "")
			if c.want != "" {
				assert.Contains(t, got.Plan.Describe(), "; reboots: "+c.want)
			}
		})
	}
}
