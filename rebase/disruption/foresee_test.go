package disruption_test

import (
	"errors"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// worlds are the rendered configs of TestForPool by name.
func worlds() map[string]*mcfgv1.MachineConfig {
	return map[string]*mcfgv1.MachineConfig{
		"old":    mc(file("/etc/a", "1")),
		"plain":  mc(file(policyJSON, "1")),
		"new":    mc(file("/etc/a", "2")),
		"policy": mc(file(policyJSON, "2")),
		"pinned": mc(file("/etc/a", "1")),
		"broken": {ObjectMeta: metav1.ObjectMeta{Name: "broken"}},
	}
}

// foreseenBuilds are those of TestForPool: two of one ground, and one of another.
func foreseenBuilds() []mcfgv1.MachineOSBuild {
	build := func(image, address, ground string) mcfgv1.MachineOSBuild {
		b := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: image, Annotations: map[string]string{
			manifests.AnnotationBuildAddress: address, manifests.AnnotationBuildGround: ground}}}
		b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
		return b
	}
	return []mcfgv1.MachineOSBuild{build(i1, "1", "g"), build("r#2", "2", "g"), build("r#3", "3", "h")}
}

// i1 is the image that a pool's nodes have.
const i1 = "r.example.com/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"

func TestForPool(t *testing.T) {
	lost := errors.New("the API server is away")
	all := worlds()
	all["broken"].Spec.Config.Raw = []byte("{")
	all["pinned"].Spec.OSImageURL = i1
	config := func(name string) (*mcfgv1.MachineConfig, error) {
		if name == "unreachable" {
			return nil, lost
		}
		return all[name], nil
	}
	at := func(config, image string) target.Target { return target.Target{Config: config, Image: image} }
	cases := []struct {
		name  string
		nodes []target.Target
		goal  target.Target
		// level, change and why of the only transition; "" where there is none.
		level, change, why string
		stage              bool
		fails              string
	}{
		{name: "nothing to do", nodes: []target.Target{at("new", "")}, goal: at("new", "")},
		{name: "another config", nodes: []target.Target{at("old", "")}, goal: at("new", ""), level: "Reboot",
			why: "file /etc/a contents"},
		{name: "a config without a reboot", nodes: []target.Target{at("plain", "")}, goal: at("policy", ""),
			level: "Reload", why: "file " + policyJSON + " contents"},
		{name: "the former config is gone", nodes: []target.Target{at("gone", "")}, goal: at("new", ""), level: "Reboot",
			why: "rendered config gone is gone"},
		{name: "gone, and another image", nodes: []target.Target{at("gone", i1)}, goal: at("new", "i2"), level: "Reboot",
			change: "content", why: "rendered config gone is gone", stage: true},
		{name: "an image to come of the same ground", nodes: []target.Target{at("plain", i1)}, goal: at("policy", "r#2"),
			level: "Reload", change: "config", why: "file " + policyJSON + " contents", stage: true},
		{name: "an image to come of another ground", nodes: []target.Target{at("new", i1)}, goal: at("new", "r#3"),
			level: "Reboot", change: "content", why: "image", stage: true},
		{name: "an image to come of which nothing is known", nodes: []target.Target{at("new", i1)},
			goal: at("new", "r#new"), level: "Reboot", change: "content", why: "image", stage: true},
		{name: "the first image", nodes: []target.Target{at("new", "")}, goal: at("new", "r#2"), level: "Reboot",
			change: "content", why: "image", stage: true},
		{name: "the image is the OS image already", nodes: []target.Target{at("pinned", "")}, goal: at("pinned", i1),
			level: "Nothing"},
		{name: "back to the OS image that is the pool's", nodes: []target.Target{at("pinned", i1)}, goal: at("pinned", ""),
			level: "Nothing"},
		{name: "back to the base OS", nodes: []target.Target{at("new", i1)}, goal: at("new", ""), level: "Reboot",
			change: "content", why: "image", stage: true},
		{name: "the target's config is gone", nodes: []target.Target{at("old", "")}, goal: at("gone", ""),
			fails: "there is no rendered config gone"},
		{name: "the target's config cannot be asked for", nodes: []target.Target{at("old", "")},
			goal: at("unreachable", ""), fails: lost.Error()},
		{name: "the former config cannot be asked for", nodes: []target.Target{at("unreachable", "")}, goal: at("new", ""),
			fails: lost.Error()},
		{name: "a config that cannot be read", nodes: []target.Target{at("broken", "")}, goal: at("new", ""),
			fails: "broken"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			nodes := map[string]target.Target{"other": c.goal}
			for i, has := range c.nodes {
				nodes[string(rune('a'+i))] = has
			}
			settings, err := disruption.Read(nil)
			require.NoError(t, err)
			got, err := disruption.ForPool(nodes, disruption.Foresight{Target: c.goal, Settings: settings,
				Builds: foreseenBuilds(), Config: config})
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			if c.level == "" && len(got.Plan.Transitions) == 0 {
				assert.Empty(t, got.Nodes)
				assert.Empty(t, got.Draining())
				return
			}
			require.Len(t, got.Plan.Transitions, 1)
			w := got.Plan.Transitions[0]
			assert.Equal(t, c.nodes[0], w.From)
			assert.Equal(t, []string{"a"}, w.Names)
			assert.Equal(t, c.level, w.Level.String())
			assert.Equal(t, c.change, string(w.Change))
			assert.Contains(t, w.Why, c.why)
			assert.Equal(t, c.stage, got.Details[w.From].Stage)
		})
	}
}

// What a plan's steps say counts nodes where they are known, in the order in which they are done.
func TestStepsOfAPool(t *testing.T) {
	from := func(config, does string, nodes int) disruption.Transition {
		return disruption.Transition{From: target.Target{Config: config}, Nodes: nodes, Steps: actions(does)}
	}
	p := disruption.NewPoolPlan(target.Target{Config: "x"}, []disruption.Transition{
		from("a", "Reboot", 2), from("b", "Restart a.service, Drain", 3), from("c", "Drain", 1)})
	assert.Equal(t, []string{"Drain on 4", "Restart a.service on 3", "Reboot on 2"}, p.Steps())
	none := disruption.NewPoolPlan(target.Target{Config: "x"}, []disruption.Transition{from("a", "Drain", 0)})
	assert.Equal(t, []string{"Drain"}, none.Steps())
}

func TestRead(t *testing.T) {
	own := defaults(t)
	s, err := disruption.Read(nil)
	require.NoError(t, err)
	assert.Equal(t, disruption.Settings{Policies: own}, s)

	rule := opv1.NodeDisruptionPolicySpecFile{Path: "/etc/a",
		Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.DrainSpecAction}}}
	object := &opv1.MachineConfiguration{}
	object.Spec.NodeDisruptionPolicy.Files = []opv1.NodeDisruptionPolicySpecFile{rule}
	s, err = disruption.Read(object)
	require.NoError(t, err)
	assert.Empty(t, s.Refused)
	require.Len(t, s.User.Files, 1)
	assert.Len(t, s.Policies.Files, len(own.Files)+1, "the admin's rule is added to the cluster's own")

	object.Spec.NodeDisruptionPolicy.Files = append(object.Spec.NodeDisruptionPolicy.Files,
		opv1.NodeDisruptionPolicySpecFile{Path: "etc", Actions: rule.Actions})
	object.Annotations = map[string]string{manifests.AnnotationMirrorPolicy: "none of these words"}
	s, err = disruption.Read(object)
	require.NoError(t, err)
	require.Len(t, s.Refused, 2)
	assert.Contains(t, s.Refused[0], "files[etc]")
	assert.Contains(t, s.Refused[1], manifests.AnnotationMirrorPolicy)
}

func TestRendered(t *testing.T) {
	units, owners, err := disruption.Rendered(mc(unit("a.service", "[Unit]\n"), templates(userFile("/etc/a", "Drain"))))
	require.NoError(t, err)
	assert.Equal(t, []string{"a.service"}, units)
	require.Len(t, owners.Files, 1)
	assert.Equal(t, "/etc/a", owners.Files[0].Name)
	broken := mc()
	broken.Spec.Config.Raw = []byte("{")
	_, _, err = disruption.Rendered(broken)
	assert.ErrorContains(t, err, "read rendered config")
	broken = mc()
	broken.Annotations = map[string]string{manifests.AnnotationPostConfigActions: "{"}
	_, _, err = disruption.Rendered(broken)
	assert.ErrorContains(t, err, "read rendered config")
}

func TestPublishedRules(t *testing.T) {
	p := userFile("/etc/a", "Drain, Reload a.service")
	p.Units = userUnit("a.service", "Restart a.service").Units
	p.SSHKey = &disruption.Rule{Actions: actions("None")}
	assert.Equal(t, []disruption.PublishedRule{
		{Kind: "file", Name: "/etc/a", Actions: "Drain, Reload a.service", Origin: disruption.OriginUser, Pool: "worker",
			Effect: "Drain"},
		{Kind: "unit", Name: "a.service", Actions: "Restart a.service", Origin: disruption.OriginUser, Pool: "worker",
			Effect: "Reload"},
		{Kind: "sshkey", Actions: "None", Pool: "worker", Effect: "Quiet"},
	}, p.Published("worker"))
}

func TestDoubts(t *testing.T) {
	units := map[string]bool{"mine.service": true, "t@.service": true}
	cases := []struct {
		name string
		user disruption.Policies
		says []string
	}{
		{"nothing", disruption.Policies{}, nil},
		{"a unit of the configs", userFile("/etc/a", "Restart mine.service"), nil},
		{"an instance of one", userFile("/etc/a", "Restart t@one.service"), nil},
		{"a unit of the cluster's own rules", userFile("/etc/a", "Reload crio.service"), nil},
		{"a unit that nobody knows", userFile("/etc/a", "Restart none.service"), []string{"defines the unit none.service"}},
		{"the registries' file", userFile(registries, "None"), []string{"replaces the cluster's own"}},
		{"a rule of an unknown unit", userUnit("none.service", "Reboot"), []string{"has no effect yet"}},
		{"a restart without a reload of systemd", userUnit("mine.service", "Restart mine.service"), []string{"DaemonReload"}},
		{"a reload without one", userUnit("mine.service", "Reload mine.service"), []string{"DaemonReload"}},
		{"a restart with one", userUnit("mine.service", "DaemonReload, Restart mine.service"), nil},
		{"keys", disruption.Policies{SSHKey: &disruption.Rule{Actions: actions("Restart none.service")}},
			[]string{"sshkey: Restart none.service"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := disruption.Doubts(c.user, units)
			require.Len(t, got, len(c.says), "%v", got)
			for i, says := range c.says {
				assert.Contains(t, got[i], says)
			}
		})
	}
}

// A node that may have either of two configs does what either plan does.
func TestJoin(t *testing.T) {
	stage := disruption.Plan{Stage: true, Live: true, Steps: actions("Drain")}
	restart := disruption.Plan{Steps: actions("Restart a.service"), Level: disruption.LevelReload,
		Impossible: []string{"no"}}
	for _, joined := range []disruption.Plan{disruption.Join(stage, restart), disruption.Join(restart, stage)} {
		assert.True(t, joined.Stage)
		assert.True(t, joined.Live)
		assert.Equal(t, disruption.LevelReload, joined.Level)
		assert.Equal(t, []string{"Drain", "Restart a.service"}, steps(joined))
		assert.Equal(t, []string{"no"}, joined.Impossible)
	}
	reboot := disruption.Plan{Level: disruption.LevelReboot, Steps: actions("Reboot")}
	assert.False(t, disruption.Join(stage, reboot).Live, "a reboot is not live")
	assert.False(t, disruption.Join(reboot, reboot).Stage)
}

// Owners and users are changes, whichever side of the change names them.
func TestOwnersAndUsers(t *testing.T) {
	owned := func(user, group *string) part {
		return func(m *mcfgv1.MachineConfig, c *ign35.Config) {
			file("/etc/a", "1")(m, c)
			c.Storage.Files[0].User.Name, c.Storage.Files[0].Group.Name = user, group
		}
	}
	change := func(before, after *mcfgv1.MachineConfig) []string {
		p, err := disruption.Effect(disruption.Input{Old: before, New: after, Policies: defaults(t)})
		require.NoError(t, err)
		var out []string
		for _, c := range p.Changes {
			out = append(out, c.Name+" "+c.What)
		}
		return append(out, p.Impossible...)
	}
	plain := mc(file("/etc/a", "1"))
	assert.Equal(t, []string{"/etc/a owner"}, change(plain, mc(owned(new("core"), nil))))
	assert.Equal(t, []string{"/etc/a owner"}, change(plain, mc(owned(nil, new("core")))))
	assert.Empty(t, change(plain, mc(file("/etc/a", "1"))))
	assert.NotEmpty(t, change(mc(key("other", "k")), mc()), "another user goes")
	assert.NotEmpty(t, change(mc(), mc(key("other", "k"))), "another user comes")
	assert.NotEmpty(t, change(mc(key("core", "k")), mc()), "core's keys go")
}
