package disruption_test

import (
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/disruption"
)

// restart is an admin's rule as the API has it.
func restart(path string, units ...string) opv1.NodeDisruptionPolicySpecFile {
	f := opv1.NodeDisruptionPolicySpecFile{Path: path}
	for _, u := range units {
		f.Actions = append(f.Actions, opv1.NodeDisruptionPolicySpecAction{Type: opv1.RestartSpecAction,
			Restart: &opv1.RestartService{ServiceName: opv1.NodeDisruptionPolicyServiceName(u)}})
	}
	return f
}

// TestWhatMCOsDaemonDoes holds the effect against the rules of MCO's daemon, where they differ from the agent's too.
func TestWhatMCOsDaemonDoes(t *testing.T) {
	const old = "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n"
	const other = "q.example/os@sha256:2"
	conf := "/etc/containers/registries.conf"
	cases := []struct {
		name     string
		policy   []opv1.NodeDisruptionPolicySpecFile
		old, new []part
		was, is  string
		steps    string
		level    disruption.Level
	}{
		{name: "a file without a rule", new: []part{file("/etc/a", "1")}, steps: "Drain, Reboot",
			level: disruption.LevelReboot},
		{name: "two files with one rule: its service restarts twice",
			policy: []opv1.NodeDisruptionPolicySpecFile{restart("/etc/app", "app.service")},
			new:    []part{file("/etc/app/a", "1"), file("/etc/app/b", "1")}, steps: "Restart app.service, Restart app.service",
			level: disruption.LevelReload},
		{name: "a rule in a layered pool", was: other, is: other,
			policy: []opv1.NodeDisruptionPolicySpecFile{restart("/etc/app", "app.service")},
			new:    []part{file("/etc/app", "1")}, steps: "Restart app.service", level: disruption.LevelReload},
		{name: "nothing in a layered pool", was: other, is: other},
		{name: "the longest path as it is written", level: disruption.LevelReload, steps: "Restart b.service",
			policy: []opv1.NodeDisruptionPolicySpecFile{restart("/etc/app", "a.service"), restart("/etc/app/", "b.service")},
			new:    []part{file("/etc/app/a", "1")}},
		{name: "a rule for the root covers nothing", policy: []opv1.NodeDisruptionPolicySpecFile{restart("/", "a.service")},
			new: []part{file("/etc/a", "1")}, steps: "Drain, Reboot", level: disruption.LevelReboot},
		{name: "owners' rules of a rendered config are not MCO's", level: disruption.LevelReboot, steps: "Drain, Reboot",
			new: []part{file("/etc/a", "1"), templates(disruption.Policies{Files: []disruption.Rule{{Name: "/etc/a",
				Actions: []disruption.Action{{Type: disruption.None}}, Origin: "MachineConfig a"}}})}},
		{name: "contents in another encoding", old: []part{file("/etc/a", "1")}, new: []part{escaped("/etc/a", "1")},
			steps: "Drain, Reboot", level: disruption.LevelReboot},
		{name: "the kubelet's CA is a file like others", steps: "Drain, Reboot", level: disruption.LevelReboot,
			new: []part{file("/etc/kubernetes/kubelet-ca.crt", "x")}},
		{name: "a first mirror set for digests", new: []part{file(conf, old)}, steps: "Reload crio.service",
			level: disruption.LevelReload},
		{name: "a mirror removed", old: []part{file(conf, old)}, new: []part{file(conf, "[[registry]]\nlocation = 'a'\n")},
			steps: "Drain, Reload crio.service", level: disruption.LevelDrain},
		{name: "a blocked registry drains", old: []part{file(conf, old)}, new: []part{file(conf,
			"[[registry]]\nlocation = 'a'\n"+
				"blocked = true\n[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n")},
			steps: "Drain, Reload crio.service", level: disruption.LevelDrain},
		{name: "SSH keys", new: []part{key("core", "k")}, steps: "", level: disruption.LevelQuiet},
		{name: "another user", new: []part{key("root", "k")}, level: disruption.LevelImpossible},
		{name: "directories", new: []part{func(_ *mcfgv1.MachineConfig, c *ign35.Config) {
			c.Storage.Directories = []ign35.Directory{{Node: ign35.Node{Path: "/d"}}}
		}}, was: "q.example/os@sha256:1", is: "q.example/os@sha256:1", level: disruption.LevelImpossible},
		{name: "FIPS", new: []part{spec(func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true })}, steps: "Drain, Reboot",
			level: disruption.LevelImpossible},
		{name: "another image, whatever differs in it", was: "q.example/os@sha256:1", is: other, steps: "Drain, Reboot",
			level: disruption.LevelReboot},
		{name: "opting out boots twice", was: other, is: "", steps: "Drain, Reboot, Reboot", level: disruption.LevelReboot},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			object := &opv1.MachineConfiguration{}
			object.Spec.NodeDisruptionPolicy.Files = c.policy
			settings, err := disruption.ReadFor(disruption.ActorMCO, object)
			require.NoError(t, err)
			was, is := mc(c.old...), mc(c.new...)
			is.Name = "rendered-worker-y"
			way := disruption.Way{From: was, To: is, Was: c.was, Is: c.is, ConfigOnly: true}
			in := way.Input(settings)
			plan, err := disruption.Effect(in)
			require.NoError(t, err)
			assert.Equal(t, in.Layered && len(plan.Changes) > 0 && c.level < disruption.LevelReboot, plan.Live)
			assert.Equal(t, c.level, plan.Level, "%+v", plan.Changes)
			if c.steps != "" || len(plan.Steps) > 0 {
				assert.Equal(t, c.steps, plan.Summary())
			}
		})
	}
}

// TestMCOsPublishedRulesCount takes MCO's status, whose defaults may be those of another version, while it is that of
// the present spec.
func TestMCOsPublishedRulesCount(t *testing.T) {
	object := &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	object.Spec.NodeDisruptionPolicy.Files = []opv1.NodeDisruptionPolicySpecFile{restart("/etc/a", "a.service")}
	object.Status.NodeDisruptionPolicyStatus.ClusterPolicies.Files = []opv1.NodeDisruptionPolicyStatusFile{
		{Path: "/etc/late", Actions: []opv1.NodeDisruptionPolicyStatusAction{{Type: opv1.NoneStatusAction}}}}
	files := func(observed int64) (out []string) {
		object.Status.ObservedGeneration = observed
		s, err := disruption.ReadFor(disruption.ActorMCO, object)
		require.NoError(t, err)
		for _, r := range s.Policies.Files {
			out = append(out, r.Name)
		}
		return out
	}
	assert.Equal(t, []string{"/etc/late"}, files(2))
	assert.Contains(t, files(1), "/etc/a", "not observed yet: what the merge gives")
}
