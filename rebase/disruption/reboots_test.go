package disruption

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/postconfig"
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

// What the owners of MachineConfigs ask for counts where the pool has no policy, and all changes that reboot ask for
// it.
func TestOwnersAskForSoftReboots(t *testing.T) {
	rules := func(actions map[string]string) string {
		var r postconfig.Rules
		for _, path := range slices.Sorted(maps.Keys(actions)) {
			parsed, err := postconfig.ParseActions(actions[path])
			require.NoError(t, err)
			r.Files = append(r.Files, Rule{Name: path, Actions: parsed, Origin: "MachineConfig 50-app"})
		}
		text, err := postconfig.Encode(r)
		require.NoError(t, err)
		return text
	}
	soft := map[string]string{"/etc/app": "SoftReboot"}
	for _, c := range []struct {
		name    string
		pool    softreboot.Policy
		rules   map[string]string
		changed []string
		image   string
		base    bool
		// promised is the node's policy, want what is foreseen.
		promised softreboot.Policy
		want     string
	}{
		{name: "alone", rules: soft, changed: []string{"/etc/app"}, promised: softreboot.SoftIfPossible,
			want: "soft (likely)"},
		{name: "beside a restart", rules: map[string]string{"/etc/app": "SoftReboot", "/etc/b": "Restart b.service"},
			changed: []string{"/etc/app", "/etc/b"}, promised: softreboot.SoftIfPossible, want: "soft (likely)"},
		{name: "beside a reboot", rules: map[string]string{"/etc/app": "SoftReboot", "/etc/b": "Reboot"},
			changed: []string{"/etc/app", "/etc/b"},
			want:    "hard: file /etc/b does not ask for a soft reboot: policy for /etc/b (MachineConfig 50-app)"},
		{name: "beside a file without a rule", rules: soft, changed: []string{"/etc/app", "/etc/c"},
			want: "hard: file /etc/c does not ask for a soft reboot: no policy covers this path"},
		{name: "beside another base", rules: soft, changed: []string{"/etc/app"}, base: true,
			want: "hard: image image does not ask for a soft reboot: its base, its Containerfile or its extensions differ"},
		{name: "a file of the kernel beside it",
			rules:   map[string]string{"/etc/app": "SoftReboot", "/etc/sysctl.d/a": "None"},
			changed: []string{"/etc/app", "/etc/sysctl.d/a"}, promised: softreboot.SoftIfPossible,
			want: "hard: sysctl settings of the config change"},
		{name: "the pool says Hard", pool: softreboot.Hard, rules: soft, changed: []string{"/etc/app"},
			want: "hard: the pool's reboot policy is Hard"},
		{name: "the pool says more", pool: softreboot.SoftRequired, rules: soft, changed: []string{"/etc/app", "/etc/c"},
			promised: softreboot.SoftRequired, want: "soft (likely)"},
		{name: "nobody asks", rules: map[string]string{"/etc/app": "Reboot"}, changed: []string{"/etc/app"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := func(name, content string) *mcfgv1.MachineConfig {
				mc := &mcfgv1.MachineConfig{}
				mc.Name = name
				mc.Annotations = map[string]string{manifests.AnnotationPostConfigActions: rules(c.rules)}
				var files []string
				for _, path := range c.changed {
					files = append(files, fmt.Sprintf(`{"path":%q,"contents":{"source":"data:,%s"}}`, path, content))
				}
				mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + strings.Join(files, ",") +
					`]}}`)
				return mc
			}
			configs := map[string]*mcfgv1.MachineConfig{"rendered-1": config("rendered-1", "1"),
				"rendered-2": config("rendered-2", "2")}
			policies, err := Defaults()
			require.NoError(t, err)
			has := target.Target{Config: "rendered-1", Image: "r.example.com/os@sha256:1"}
			to := target.Target{Config: "rendered-2", Image: "r.example.com/os@sha256:2"}
			got, err := ForPool(map[string]target.Target{"a": has}, Foresight{Target: to, Reboot: c.pool,
				Settings: Settings{Policies: policies}, Builds: buildsOf(has.Image, to.Image, !c.base),
				Config: func(name string) (*mcfgv1.MachineConfig, error) { return configs[name], nil }})
			require.NoError(t, err)
			w, found := got.Plan.Transition(has)
			require.True(t, found)
			assert.Equal(t, LevelReboot, w.Level)
			assert.Equal(t, []Action{{Type: Drain}, {Type: Reboot}}, w.Steps, "it is no step of its own")
			assert.Equal(t, c.want, w.Reboot)
			assert.Equal(t, c.promised, got.Plan.Promise(w).Reboot)
		})
	}
}

// buildsOf are those of two images; of the same ground they differ in their config only.
func buildsOf(was, is string, same bool) []mcfgv1.MachineOSBuild {
	var out []mcfgv1.MachineOSBuild
	for i, image := range []string{was, is} {
		b := mcfgv1.MachineOSBuild{}
		b.Name = fmt.Sprintf("b-%d", i)
		ground := "ground"
		if !same {
			ground = b.Name
		}
		b.Annotations = map[string]string{manifests.AnnotationBuildGround: ground, manifests.AnnotationBuildAddress: b.Name}
		b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
		out = append(out, b)
	}
	return out
}

// Images whose builders noted their kernels are compared by them.
func TestForeseenByKernels(t *testing.T) {
	const was, is = "r.example.com/os@sha256:1", "r.example.com/os@sha256:2"
	for _, c := range []struct{ name, before, after, want string }{
		{"the same", "6.1.0-1.x86_64", "6.1.0-1.x86_64", "soft (likely): the image keeps kernel 6.1.0-1.x86_64"},
		{"another", "6.1.0-1.x86_64", "6.1.0-2.x86_64",
			"hard: the image has kernel 6.1.0-2.x86_64 instead of 6.1.0-1.x86_64"},
		{"one more", "6.1", "6.1,6.2", "hard: the image has kernel 6.1,6.2 instead of 6.1"},
		{"one of them unknown", "", "6.1", "soft (likely) if the image keeps kernel and initramfs"},
		{"no names of kernels", "6.1", "6.1\x1b[31m", "soft (likely) if the image keeps kernel and initramfs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mc := &mcfgv1.MachineConfig{}
			mc.Name = "rendered-1"
			mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
			builds := buildsOf(was, is, false)
			for i, kernels := range []string{c.before, c.after} {
				builds[i].Annotations[manifests.AnnotationKernels] = kernels
			}
			reused := builds[1].DeepCopy() // another pool's, of the same image
			delete(reused.Annotations, manifests.AnnotationKernels)
			policies, err := Defaults()
			require.NoError(t, err)
			has := target.Target{Config: mc.Name, Image: was}
			got, err := ForPool(map[string]target.Target{"a": has}, Foresight{Reboot: softreboot.SoftIfPossible,
				Target: target.Target{Config: mc.Name, Image: is}, Settings: Settings{Policies: policies},
				Builds: append(builds, *reused),
				Config: func(string) (*mcfgv1.MachineConfig, error) { return mc, nil }})
			require.NoError(t, err)
			w, found := got.Plan.Transition(has)
			require.True(t, found)
			assert.Equal(t, c.want, w.Reboot)
		})
	}
}
