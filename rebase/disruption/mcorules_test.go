package disruption_test

import (
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// effectOfMCO is what MCO's daemon does for a change of the config.
func effectOfMCO(t *testing.T, object *opv1.MachineConfiguration, was, is *mcfgv1.MachineConfig) disruption.Plan {
	t.Helper()
	settings, err := disruption.ReadFor(disruption.ActorMCO, object)
	require.NoError(t, err)
	is.Name = "rendered-worker-y"
	way := disruption.Way{From: was, To: is, ConfigOnly: true}
	plan, err := disruption.Effect(way.Input(settings))
	require.NoError(t, err)
	return plan
}

// TestWhenMCODrainsForMirrors holds the rule by which MCO's daemon drains a node for a changed registries.conf: not
// where every image keeps its source.
func TestWhenMCODrainsForMirrors(t *testing.T) {
	const digests, search = "digest-only", "unqualified-search-registries = "
	plain := func(location string) string { return "[[registry]]\nlocation = '" + location + "'\n" }
	with := func(location, pull string) string {
		m := "[[registry.mirror]]\nlocation = '" + location + "'\n"
		if pull != "" {
			m += "pull-from-mirror = '" + pull + "'\n"
		}
		return m
	}
	a := plain("a")
	for _, c := range []struct {
		name, was, is string
		why           string // empty: no drain
	}{
		{"the search list grows", search + "['x']\n", search + "['x','y']\n", ""},
		{"the search list shrinks", search + "['x','y']\n", search + "['x']\n", "the search list changed"},
		{"the search list begins otherwise", search + "['x']\n", search + "['y','x']\n", "the search list changed"},
		{"a registry goes", a + plain("b"), a, "registry b removed"},
		{"a registry comes, for digests by its own word", a, a + plain("b") + "mirror-by-digest-only = true\n", ""},
		{"a registry comes without mirrors", a, a + plain("b"), "registry b added with a mirror that is not"},
		{"a registry comes with a mirror for digests", a, a + plain("b") + with("m", digests), ""},
		{"a registry comes with a mirror for tags", a, a + plain("b") + with("m", digests) + with("n", ""),
			"registry b added with a mirror that is not"},
		{"a registry moves", "[[registry]]\nprefix = 'p'\nlocation = 'a'\n", "[[registry]]\nprefix = 'p'\nlocation = 'b'\n",
			"registry p: prefix, location, blocked or insecure changed"},
		{"a location gets a prefix", a, "[[registry]]\nprefix = 'p'\nlocation = 'a'\n", "registry a removed"},
		{"a prefix is its location", a, "[[registry]]\nprefix = 'a'\nlocation = 'a'\n",
			"registry a: prefix, location, blocked or insecure changed"},
		{"a registry is blocked", a, a + "blocked = true\n", "blocked or insecure changed"},
		{"a registry is insecure", a, a + "insecure = true\n", "blocked or insecure changed"},
		{"two registries, and nothing changes but a comment", a + plain("b"), "# c\n" + a + plain("b"), ""},
		{"a mirror for digests comes", a + with("m", digests), a + with("m", digests) + with("n", digests), ""},
		{"a mirror for tags comes", a + with("m", digests), a + with("m", digests) + with("n", ""),
			"registry a: mirror n is not for digests only"},
		{"a mirror comes to a registry for digests", a + "mirror-by-digest-only = true\n",
			a + "mirror-by-digest-only = true\n" + with("n", ""), ""},
		{"a mirror goes", a + with("m", digests) + with("n", digests), a + with("n", digests), "mirror m removed"},
		{"mirrors change places", a + with("m", digests) + with("n", digests),
			a + with("n", digests) + with("m", digests), ""},
		{"a mirror is for digests from now on", a + with("m", ""), a + with("m", digests), ""},
		{"a mirror is for tags from now on", a + with("m", digests), a + with("m", ""), "mirror m is not for digests only"},
		{"a mirror for tags stays one", a + with("m", ""), "# c\n" + a + with("m", ""), ""},
		{"the present file is no TOML", "[[", a, "the present file cannot be read"},
		{"the new file is no TOML", a, "[[", "the new file cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			const conf = "/etc/containers/registries.conf"
			plan := effectOfMCO(t, nil, mc(file(conf, c.was)), mc(file(conf, c.is)))
			require.Len(t, plan.Changes, 1)
			if c.why == "" {
				assert.Equal(t, "Reload crio.service", plan.Summary())
				assert.Contains(t, plan.Changes[0].Why, "every image keeps its source")
				return
			}
			assert.Equal(t, "Drain, Reload crio.service", plan.Summary())
			assert.Contains(t, plan.Changes[0].Why, c.why)
		})
	}
}

// TestUnitsAndUsersOfMCO holds what MCO's daemon makes of units, users and storage.
func TestUnitsAndUsersOfMCO(t *testing.T) {
	restartOf := func(u opv1.NodeDisruptionPolicyServiceName) []opv1.NodeDisruptionPolicySpecAction {
		return []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.RestartSpecAction,
			Restart: &opv1.RestartService{ServiceName: u}}}
	}
	object := &opv1.MachineConfiguration{}
	object.Spec.NodeDisruptionPolicy.Units = []opv1.NodeDisruptionPolicySpecUnit{{Name: "a.service",
		Actions: restartOf("a.service")}}
	object.Spec.NodeDisruptionPolicy.SSHKey.Actions = restartOf("sshd.service")
	users := func(list ...ign35.PasswdUser) part {
		return func(_ *mcfgv1.MachineConfig, c *ign35.Config) { c.Passwd.Users = list }
	}
	core := ign35.PasswdUser{Name: "core", SSHAuthorizedKeys: []ign35.SSHAuthorizedKey{"k"}}
	withShell := core
	withShell.Shell = new("/bin/sh")
	changed := func(f func(*ign35.Config)) part { return func(_ *mcfgv1.MachineConfig, c *ign35.Config) { f(c) } }
	for _, c := range []struct {
		name       string
		was, is    []part
		steps      string
		impossible string
	}{
		{name: "nothing", was: []part{unit("a.service", "x"), users(core)}, is: []part{unit("a.service", "x"), users(core)}},
		{name: "a unit with a rule", is: []part{unit("a.service", "x")}, steps: "Restart a.service"},
		{name: "a unit with a rule changes", was: []part{unit("a.service", "x")}, is: []part{unit("a.service", "y")},
			steps: "Restart a.service"},
		{name: "a unit without a rule", is: []part{unit("b.service", "x")}, steps: "Drain, Reboot"},
		{name: "a unit written in another way", was: []part{unit("b.service", "x")}, is: []part{unit("b.service", "x"),
			changed(func(c *ign35.Config) { c.Systemd.Units[0].Mask = new(false) })}, steps: "Drain, Reboot"},
		{name: "keys", is: []part{users(core)}, steps: "Restart sshd.service"},
		{name: "a password", is: []part{users(ign35.PasswdUser{Name: "core", PasswordHash: new("x")})},
			steps: "Restart sshd.service"},
		{name: "a user without keys", is: []part{users(ign35.PasswdUser{Name: "core"})}, impossible: "user core"},
		{name: "a shell", is: []part{users(withShell)}, impossible: "user core"},
		{name: "another user", is: []part{users(ign35.PasswdUser{Name: "root", PasswordHash: new("x")})},
			impossible: "user root"},
		{name: "the user goes", was: []part{users(core)}, steps: "Restart sshd.service"},
		{name: "groups", is: []part{changed(func(c *ign35.Config) {
			c.Passwd.Groups = []ign35.PasswdGroup{{Name: "g"}}
		})}, impossible: "groups"},
		{name: "links", is: []part{changed(func(c *ign35.Config) {
			c.Storage.Links = []ign35.Link{{Node: ign35.Node{Path: "/l"}, LinkEmbedded1: ign35.LinkEmbedded1{Target: new("/t")}}}
		})}, impossible: "links"},
		{name: "links go", was: []part{changed(func(c *ign35.Config) {
			c.Storage.Links = []ign35.Link{{Node: ign35.Node{Path: "/l"}, LinkEmbedded1: ign35.LinkEmbedded1{Target: new("/t")}}}
		})}},
		{name: "kernel arguments of Ignition", is: []part{changed(func(c *ign35.Config) {
			c.KernelArguments.ShouldExist = []ign35.KernelArgument{"a"}
		})}, impossible: "ignition.kernelArguments"},
		{name: "an empty list is none", is: []part{changed(func(c *ign35.Config) { c.Storage.Disks = []ign35.Disk{} })}},
		{name: "appending", is: []part{file("/etc/a", "1"), changed(func(c *ign35.Config) {
			c.Storage.Files[0].Append = []ign35.Resource{{}}
		})}, impossible: "appending to /etc/a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := effectOfMCO(t, object, mc(c.was...), mc(c.is...))
			if c.impossible != "" {
				assert.Contains(t, strings.Join(plan.Impossible, "\n"), c.impossible)
				assert.Equal(t, disruption.LevelImpossible, plan.Level)
				return
			}
			assert.Empty(t, plan.Impossible)
			if c.steps == "" {
				assert.Empty(t, plan.Steps)
				return
			}
			assert.Equal(t, c.steps, plan.Summary())
		})
	}
}

// TestOriginsOfMCOsPublishedRules: MCO's status has its own rules and the admin's in one list.
func TestOriginsOfMCOsPublishedRules(t *testing.T) {
	object := &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	object.Status.ObservedGeneration = 1
	object.Spec.NodeDisruptionPolicy.Files = []opv1.NodeDisruptionPolicySpecFile{restart("/etc/a", "a.service")}
	published := &object.Status.NodeDisruptionPolicyStatus.ClusterPolicies
	published.Files = []opv1.NodeDisruptionPolicyStatusFile{{Path: "/etc/a"}, {Path: "/etc/b"}}
	published.Units = []opv1.NodeDisruptionPolicyStatusUnit{{Name: "u.service"}}
	origins := func() (out []disruption.Origin) {
		s, err := disruption.ReadFor(disruption.ActorMCO, object)
		require.NoError(t, err)
		for _, r := range append(s.Policies.Files, s.Policies.Units...) {
			out = append(out, r.Origin)
		}
		return append(out, s.Policies.SSHKey.Origin)
	}
	user, own := disruption.OriginUser, disruption.OriginDefault
	assert.Equal(t, []disruption.Origin{user, own, own, own}, origins())
	object.Spec.NodeDisruptionPolicy.Units = []opv1.NodeDisruptionPolicySpecUnit{{Name: "u.service"}}
	object.Spec.NodeDisruptionPolicy.SSHKey.Actions = []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}
	assert.Equal(t, []disruption.Origin{user, own, user, user}, origins())
}

// TestDescribe says in a sentence what a pool's plan does, with what made its level.
func TestDescribe(t *testing.T) {
	to := target.Target{Config: "rendered-worker-2"}
	p := disruption.NewPoolPlan(to, []disruption.Transition{
		{From: target.Target{Config: "rendered-worker-0"}, Nodes: 1, Level: disruption.LevelReload, Why: "file /etc/a"},
		{From: target.Target{Config: "rendered-worker-1"}, Nodes: 2, Level: disruption.LevelReboot, Why: "unit b.service",
			Steps: []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Reboot}}}})
	said := p.Describe()
	assert.Contains(t, said, "rendered-worker-2 changes 3 nodes: ")
	assert.Contains(t, said, "; because of unit b.service")
	assert.NotContains(t, said, "/etc/a")
	assert.NotContains(t, said, "PodDisruptionBudgets")
	assert.NotContains(t, said, "about")
	p.Blocking, p.Seconds = []string{"shop/db"}, 90
	said = p.Describe()
	assert.Contains(t, said, "PodDisruptionBudgets that allow no eviction now: shop/db")
	assert.Contains(t, said, "; about 1m30s")
	assert.Equal(t, "every node that has reported has rendered-worker-2", disruption.NewPoolPlan(to, nil).Describe())
}

// TestAppliesTellsRulesApart: rules of the same kind, name or origin are not one.
func TestAppliesTellsRulesApart(t *testing.T) {
	p := disruption.Policies{Files: []disruption.Rule{{Name: "/etc/a", Origin: disruption.OriginUser,
		Actions: []disruption.Action{{Type: disruption.None}}}}}
	rule := p.Published("")[0]
	change := disruption.Change{Kind: disruption.KindFile, Rule: &p.Files[0]}
	assert.True(t, rule.Applies(change))
	assert.False(t, rule.Applies(disruption.Change{Kind: disruption.KindFile}))
	for _, spoil := range []func(r *disruption.PublishedRule){
		func(r *disruption.PublishedRule) { r.Kind = "unit" }, func(r *disruption.PublishedRule) { r.Name = "/etc/b" },
		func(r *disruption.PublishedRule) { r.Origin = disruption.OriginDefault }} {
		other := rule
		spoil(&other)
		assert.False(t, other.Applies(change))
	}
}

// A node's transition is that of what it has, and a plan without steps says none.
func TestTransitionOfANode(t *testing.T) {
	old, older := target.Target{Config: "rendered-worker-1"}, target.Target{Config: "rendered-worker-0"}
	p := disruption.NewPoolPlan(target.Target{Config: "rendered-worker-2"}, []disruption.Transition{
		{Nodes: 2, From: old, Level: disruption.LevelQuiet}, {Nodes: 1, From: older, Level: disruption.LevelQuiet}})
	for _, from := range []target.Target{old, older} {
		w, found := p.Transition(from)
		assert.True(t, found)
		assert.Equal(t, from, w.From)
	}
	_, found := p.Transition(target.Target{Config: "rendered-worker-9"})
	assert.False(t, found)
	assert.Equal(t, "rendered-worker-2 changes 3 nodes: "+disruption.LevelQuiet.String(), p.Describe())
}
