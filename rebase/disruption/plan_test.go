package disruption_test

import (
	"encoding/json"
	"slices"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/postconfig"
	"dayone.dev/dayone/rebase/disruption"
)

// part is one piece of a rendered config.
type part func(*mcfgv1.MachineConfig, *ign35.Config)

func file(path, contents string) part {
	return func(_ *mcfgv1.MachineConfig, c *ign35.Config) {
		c.Storage.Files = append(c.Storage.Files, ign35.File{Node: ign35.Node{Path: path},
			FileEmbedded1: ign35.FileEmbedded1{Contents: machineconfig.Inline([]byte(contents)), Mode: new(0o644)}})
	}
}

func escaped(path, contents string) part {
	return func(_ *mcfgv1.MachineConfig, c *ign35.Config) {
		c.Storage.Files = append(c.Storage.Files, ign35.File{Node: ign35.Node{Path: path},
			FileEmbedded1: ign35.FileEmbedded1{Contents: machineconfig.Escaped([]byte(contents))}})
	}
}

func mode(path, contents string, m int) part {
	return func(mc *mcfgv1.MachineConfig, c *ign35.Config) {
		file(path, contents)(mc, c)
		c.Storage.Files[len(c.Storage.Files)-1].Mode = &m
	}
}

func unit(name, contents string) part {
	return func(_ *mcfgv1.MachineConfig, c *ign35.Config) {
		c.Systemd.Units = append(c.Systemd.Units, ign35.Unit{Name: name, Contents: &contents, Enabled: new(true)})
	}
}

func key(user, key string) part {
	return func(_ *mcfgv1.MachineConfig, c *ign35.Config) {
		c.Passwd.Users = append(c.Passwd.Users, ign35.PasswdUser{Name: user,
			SSHAuthorizedKeys: []ign35.SSHAuthorizedKey{ign35.SSHAuthorizedKey(key)}})
	}
}

func spec(f func(*mcfgv1.MachineConfigSpec)) part {
	return func(mc *mcfgv1.MachineConfig, _ *ign35.Config) { f(&mc.Spec) }
}

func templates(p disruption.Policies) part {
	return func(mc *mcfgv1.MachineConfig, _ *ign35.Config) {
		text, err := postconfig.Encode(postconfig.Rules{Files: p.Files, Units: p.Units})
		if err != nil {
			panic(err)
		}
		mc.Annotations = map[string]string{manifests.AnnotationPostConfigActions: text}
	}
}

func mc(parts ...part) *mcfgv1.MachineConfig {
	out := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-x"}}
	c := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, p := range parts {
		p(out, &c)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	out.Spec.Config = runtime.RawExtension{Raw: raw}
	return out
}

func actions(text string) []disruption.Action {
	if text == "" {
		return nil
	}
	out, err := postconfig.ParseActions(text)
	if err != nil {
		panic(err)
	}
	return out
}

func userFile(path, does string) disruption.Policies {
	return disruption.Policies{Files: []disruption.Rule{{Name: path, Actions: actions(does),
		Origin: disruption.OriginUser}}}
}

func userUnit(name, does string) disruption.Policies {
	return disruption.Policies{Units: []disruption.Rule{{Name: name, Actions: actions(does),
		Origin: disruption.OriginUser}}}
}

func defaults(t testing.TB) disruption.Policies {
	p, err := disruption.Defaults()
	require.NoError(t, err)
	return p
}

func steps(p disruption.Plan) (out []string) {
	for _, s := range p.Steps {
		out = append(out, s.String())
	}
	return out
}

const (
	credentials = "/etc/kubernetes/credential-providers/a.yaml"
	policyJSON  = "/etc/containers/policy.json"
	registries  = "/etc/containers/registries.conf"
	cloudCA     = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
)

func TestEffect(t *testing.T) {
	template := disruption.Policies{Files: []disruption.Rule{{Name: "/etc/app.conf",
		Actions: actions("Restart app.service"), Origin: "MachineConfig 50-app"}},
		Units: []disruption.Rule{{Name: "app.service", Actions: actions("DaemonReload, Restart app.service"),
			Origin: "MachineConfig 50-app"}}}
	digest := "[[registry]]\nlocation='a.io/b'\n[[registry.mirror]]\nlocation='m.io/b'\npull-from-mirror='digest-only'\n"
	for _, c := range []struct {
		name     string
		old, new []part
		in       disruption.Input
		user     disruption.Policies
		steps    []string
		level    disruption.Level
		origin   disruption.Origin
	}{
		{name: "nothing", old: []part{file("/etc/a", "1")}, new: []part{file("/etc/a", "1")}},
		{name: "another encoding of the same", old: []part{file("/etc/a", "1")}, new: []part{escaped("/etc/a", "1")}},
		{name: "a file without policy", old: []part{file("/etc/a", "1")}, new: []part{file("/etc/a", "2")},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "an added file", new: []part{file(policyJSON, "2")}, steps: []string{"Reload crio.service"},
			level: disruption.LevelReload, origin: disruption.OriginDefault},
		{name: "a removed file", old: []part{file(policyJSON, "2")}, steps: []string{"Reload crio.service"},
			level: disruption.LevelReload},
		{name: "another mode", old: []part{mode(policyJSON, "2", 0o600)}, new: []part{file(policyJSON, "2")},
			steps: []string{"Reload crio.service"}, level: disruption.LevelReload},
		{name: "no action at all", old: []part{file("/var/lib/kubelet/config.json", "1")},
			new: []part{file("/var/lib/kubelet/config.json", "2")}, level: disruption.LevelQuiet},
		{name: "a file below a policy's " +
			"path", new: []part{file(credentials, "1")}, steps: []string{"Restart kubelet.service"},
			level: disruption.LevelReload},
		{name: "a path that only begins like", new: []part{file("/etc/kubernetes/credential-providers-other", "1")},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "a list that another has in its order adds nothing", new: []part{file(credentials, "1"),
			file(credentials+"2", "1"), file(policyJSON, "1"), file("/etc/containers/registries.d/x", "1"),
			file("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", "1")},
			steps: []string{"Reload crio.service", "DaemonReload", "Restart kubelet.service"}, level: disruption.LevelReload},
		{name: "a list runs in its own order", new: []part{file("/etc/a", "1")},
			user:  userFile("/etc/a", "Restart z.service, DaemonReload, Reload a.service, Restart b.service"),
			steps: []string{"Restart z.service", "DaemonReload", "Reload a.service", "Restart b.service"},
			level: disruption.LevelReload},
		{name: "a repeated restart is two restarts", new: []part{file("/etc/a", "1")},
			user:  userFile("/etc/a", "Restart a.service, DaemonReload, Restart a.service"),
			steps: []string{"Restart a.service", "DaemonReload", "Restart a.service"}, level: disruption.LevelReload},
		{name: "a restart and a reload are both done", new: []part{file("/etc/a", "1")},
			user:  userFile("/etc/a", "Restart a.service, Reload a.service"),
			steps: []string{"Restart a.service", "Reload a.service"}, level: disruption.LevelReload},
		{name: "a drain comes before the files, wherever it stands", new: []part{file("/etc/a", "1")},
			user:  userFile("/etc/a", "Restart a.service, Drain, Restart b.service"),
			steps: []string{"Drain", "Restart a.service", "Restart b.service"}, level: disruption.LevelDrain},
		{name: "lists follow each other as the changes do", new: []part{file("/etc/b", "1"), file("/etc/a", "1"),
			unit("a.service", "x")}, user: disruption.Policies{
			Files: slices.Concat(userFile("/etc/b", "Restart a.service, Restart b.service").Files,
				userFile("/etc/a", "Restart b.service, Restart a.service").Files),
			Units: userUnit("a.service", "DaemonReload, Restart a.service").Units},
			steps: []string{"Restart b.service", "Restart a.service", "Restart a.service", "Restart b.service",
				"DaemonReload", "Restart a.service"}, level: disruption.LevelReload},
		{name: "a reboot makes the rest idle", new: []part{file(credentials, "1"), file("/etc/a", "1")},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "rules of two files are both carried out", new: []part{file(policyJSON, "1"), file("/etc/a", "1")},
			user:  userFile("/etc/a", "Restart crio.service"),
			steps: []string{"Restart crio.service", "Reload crio.service"}, level: disruption.LevelReload},
		{name: "the user wins", new: []part{file(policyJSON, "1")}, user: userFile(policyJSON, "None"),
			level: disruption.LevelQuiet, origin: disruption.OriginUser},
		{name: "the longest path wins", new: []part{file(policyJSON, "1")}, user: userFile("/etc", "None"),
			steps: []string{"Reload crio.service"}, level: disruption.LevelReload, origin: disruption.OriginDefault},
		{name: "the root covers everything", new: []part{file("/etc/a", "1")}, user: userFile("/", "None"),
			level: disruption.LevelQuiet},
		{name: "a drain alone", new: []part{file("/etc/a", "1")},
			user: userFile("/etc/a", "Drain, Restart b.service"), steps: []string{"Drain", "Restart b.service"},
			level: disruption.LevelDrain},
		{name: "a unit without policy", new: []part{unit("a.service", "x")}, steps: []string{"Drain", "Reboot"},
			level: disruption.LevelReboot},
		{name: "a unit with policy", old: []part{unit("a.service", "x")}, new: []part{unit("a.service", "y")},
			user: userUnit("a.service", "DaemonReload, Restart a.service"), steps: []string{"DaemonReload", "Restart a.service"},
			level: disruption.LevelReload},
		{name: "a template owner's file", old: []part{file("/etc/app.conf", "1"), templates(template)},
			new: []part{file("/etc/app.conf", "2"), templates(template)}, steps: []string{"Restart app.service"},
			level: disruption.LevelReload, origin: "MachineConfig 50-app"},
		{name: "a template owner's removed one", old: []part{file("/etc/app.conf", "1"), templates(template)},
			steps: []string{"Restart app.service"}, level: disruption.LevelReload},
		{name: "a template owner's unit", new: []part{unit("app.service", "1"), templates(template)},
			steps: []string{"DaemonReload", "Restart app.service"}, level: disruption.LevelReload},
		{name: "the user wins over the owner", new: []part{file("/etc/app.conf", "1"), templates(template)},
			user: userFile("/etc/app.conf", "None"), level: disruption.LevelQuiet, origin: disruption.OriginUser},
		{name: "the user's directory wins over the owner's file", new: []part{file("/etc/app.conf", "1"),
			templates(template)}, user: userFile("/etc", "Drain"), steps: []string{"Drain"}, level: disruption.LevelDrain,
			origin: disruption.OriginUser},
		{name: "the user's directory wins over the owner's removed file", old: []part{file("/etc/app.conf", "1"),
			templates(template)}, user: userFile("/etc", "None"), level: disruption.LevelQuiet,
			origin: disruption.OriginUser},
		{name: "the user's directory beside the owner's file", new: []part{file("/etc/app.conf", "1"), templates(template)},
			user: userFile("/etc/app", "Drain"), steps: []string{"Restart app.service"}, level: disruption.LevelReload,
			origin: "MachineConfig 50-app"},
		{name: "below the user's directory an owner leaves the cluster's own rules alone",
			new: []part{file(policyJSON, "1"), templates(disruption.Policies{Files: []disruption.Rule{{Name: policyJSON,
				Actions: actions("None"), Origin: "MachineConfig 50-app"}}})},
			user: userFile("/etc", "None"), steps: []string{"Reload crio.service"}, level: disruption.LevelReload,
			origin: disruption.OriginDefault},
		{name: "the kubelet's CA", old: []part{file("/etc/kubernetes/kubelet-ca.crt", "1")},
			new: []part{file("/etc/kubernetes/kubelet-ca.crt", "2")}, level: disruption.LevelQuiet},
		{name: "a cloud's CA", new: []part{file(cloudCA, "2")}, level: disruption.LevelQuiet},
		{name: "a registry's CA removed", old: []part{file("/etc/docker/certs.d/a.io:5000/ca.crt", "2")},
			level: disruption.LevelQuiet},
		{name: "another file beside a registry's CA", new: []part{file("/etc/docker/certs.d/a.io/client.key", "2")},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "dayone's own pull secret", old: []part{file("/etc/dayone/pull-secret.json", "1")},
			new: []part{file("/etc/dayone/pull-secret.json", "2")}, level: disruption.LevelQuiet},
		{name: "accounts of the control plane's registries", old: []part{file("/etc/dayone/registry/users", "1")},
			new: []part{file("/etc/dayone/registry/users", "2")}, level: disruption.LevelQuiet},
		{name: "options of the control plane's registries", old: []part{file("/etc/dayone/registry.env", "1")},
			new: []part{file("/etc/dayone/registry.env", "2")}, steps: []string{"Drain", "Reboot"},
			level: disruption.LevelReboot},
		{name: "the kubelet's CA by the user's own policy", new: []part{file("/etc/kubernetes/kubelet-ca.crt", "2")},
			user: userFile("/etc/kubernetes", "Restart kubelet.service"), steps: []string{"Restart kubelet.service"},
			level: disruption.LevelReload, origin: disruption.OriginUser},
		{name: "keys", old: []part{key("core", "a")}, new: []part{key("core", "b")},
			level: disruption.LevelQuiet, origin: disruption.OriginDefault},
		{name: "keys with a policy", new: []part{key("core", "b")},
			user:  disruption.Policies{SSHKey: &disruption.Rule{Actions: actions("Drain"), Origin: disruption.OriginUser}},
			steps: []string{"Drain"}, level: disruption.LevelDrain},
		{name: "another user", new: []part{key("eve", "b")}, level: disruption.LevelImpossible},
		{name: "kernel arguments", new: []part{spec(
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"quiet"} })}, steps: []string{"Drain", "Reboot"},
			level: disruption.LevelReboot},
		{name: "no kernel arguments, two ways", old: []part{spec(
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{} })}},
		{name: "the default kernel, two " +
			"ways", old: []part{spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "default" })}},
		{name: "another kernel", old: []part{spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "realtime" })},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "another OS image", new: []part{spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "x" })},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "another base, layered", new: []part{spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "x" })},
			in: disruption.Input{Layered: true}},
		{name: "another image", in: disruption.Input{Layered: true, Image: disruption.ImageContent},
			steps: []string{"Drain", "Reboot"}, level: disruption.LevelReboot},
		{name: "an image that differs in config only", new: []part{file(policyJSON, "1")},
			in:    disruption.Input{Layered: true, Image: disruption.ImageConfig},
			steps: []string{"Reload crio.service"}, level: disruption.LevelReload},
		{name: "disks", new: []part{func(_ *mcfgv1.MachineConfig,
			c *ign35.Config) {
			c.Storage.Disks = []ign35.Disk{{Device: "/dev/sdb"}}
		}}, level: disruption.LevelImpossible},
		{name: "a directory, plain", new: []part{directory}, level: disruption.LevelImpossible},
		{name: "a directory, layered", new: []part{directory},
			in: disruption.Input{Layered: true, Image: disruption.ImageConfig}, steps: []string{"Drain", "Reboot"},
			level: disruption.LevelReboot},
		{name: "a digest mirror added", new: []part{file(registries, digest)}, steps: []string{"Reload crio.service"},
			level: disruption.LevelReload},
		{name: "a digest mirror " +
			"removed", old: []part{file(registries, digest)}, steps: []string{"Drain", "Reload crio.service"},
			level: disruption.LevelDrain},
		{name: "a digest mirror removed, and the admin allows it", old: []part{file(registries, digest)},
			in:    disruption.Input{Mirrors: disruption.MirrorPolicy{disruption.DigestMirrors: true}},
			steps: []string{"Reload crio.service"}, level: disruption.LevelReload},
		{name: "registries.conf by the user's own policy", old: []part{file(registries, digest)},
			user: userFile(registries, "Reload crio.service"), steps: []string{"Reload crio.service"},
			level: disruption.LevelReload},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Old, c.in.New, c.in.Policies = mc(c.old...), mc(c.new...), defaults(t).Override(c.user)
			p, err := disruption.Effect(c.in)
			require.NoError(t, err)
			assert.Equal(t, c.steps, steps(p))
			assert.Equal(t, c.level, p.Level, "%+v", p)
			raw, err := json.Marshal(p)
			require.NoError(t, err)
			var again disruption.Plan
			require.NoError(t, json.Unmarshal(raw, &again))
			assert.Equal(t, p, again, "a plan is read as it was written")
			for _, change := range p.Changes {
				assert.NotEmpty(t, change.Why)
				assert.NotEmpty(t, change.What)
			}
			if c.origin != "" {
				require.NotNil(t, p.Changes[0].Rule)
				assert.Equal(t, c.origin, p.Changes[0].Rule.Origin)
			}
			assert.Equal(t, c.in.Layered && len(p.Changes) > 0 && c.level < disruption.LevelReboot, p.Live)
		})
	}
}

// A cluster may have rules that say nothing of keys: then their change is one like others.
func TestKeysWithoutAPolicy(t *testing.T) {
	p, err := disruption.Effect(disruption.Input{Old: mc(), New: mc(key("core", "a"))})
	require.NoError(t, err)
	assert.Equal(t, []string{"Drain", "Reboot"}, steps(p))
	assert.Equal(t, "no policy covers SSH keys", p.Changes[0].Why)
}

func directory(_ *mcfgv1.MachineConfig, c *ign35.Config) {
	c.Storage.Directories = []ign35.Directory{{Node: ign35.Node{Path: "/etc/d"}}}
}

func TestOwnersRulesThatCannotBeReadRefuse(t *testing.T) {
	spoiled := mc()
	spoiled.Annotations = map[string]string{manifests.AnnotationPostConfigActions: `{"files":[{"name":"/a","actions":[{"type":"Explode"}]}]}`}
	_, err := disruption.Effect(disruption.Input{Old: spoiled, New: mc()})
	require.ErrorContains(t, err, "Explode")
}

func TestFromSpec(t *testing.T) {
	none := []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.NoneSpecAction}}
	p, err := disruption.FromSpec(opv1.NodeDisruptionPolicyConfig{
		Files: []opv1.NodeDisruptionPolicySpecFile{{Path: "/etc/a/", Actions: none}, {Path: "", Actions: none},
			{Path: "etc", Actions: none}, {Path: "/etc/empty"}},
		Units: []opv1.NodeDisruptionPolicySpecUnit{{Name: "a.service",
			Actions: []opv1.NodeDisruptionPolicySpecAction{{Type: opv1.ReloadSpecAction,
				Reload: &opv1.ReloadService{ServiceName: "a.service"}}}}},
	})
	require.Error(t, err)
	assert.ErrorContains(t, err, "files[]")
	assert.ErrorContains(t, err, "files[etc]")
	assert.ErrorContains(t, err, "files[/etc/empty]: there is no action")
	require.Len(t, p.Files, 1, "what is wrong is left out")
	assert.Equal(t, "/etc/a", p.Files[0].Name, "a slash at the end does not matter")
	assert.Nil(t, p.SSHKey)
	merged := defaults(t).Override(p)
	status := merged.ClusterStatus()
	assert.Len(t, status.Files, len(defaults(t).Files)+1)
	assert.Equal(t, opv1.NodeDisruptionPolicyServiceName("a.service"), status.Units[1].Actions[0].Reload.ServiceName)
	assert.Equal(t, opv1.NoneStatusAction, status.SSHKey.Actions[0].Type)
}
