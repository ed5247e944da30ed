package daemon_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/postconfig"
	"dayone.dev/dayone/manifests/render"
)

// deeds makes random clusters and changes of them.
type deeds struct {
	*rand.Rand
	// topology is the control plane's; it stays.
	topology configv1.TopologyMode
}

// deedChange is what somebody does to a cluster.
type deedChange struct {
	// files are objects that are applied.
	files []client.Object
	// optOut deletes the MachineOSConfig.
	optOut bool
}

// deedConfigs is how many MachineConfigs the pool has.
const deedConfigs = 2

func (g *deeds) pick(from ...string) string { return from[g.IntN(len(from))] }

// often is true so many times of a hundred.
func (g *deeds) often(percent int) bool { return g.IntN(100) < percent }

func (g *deeds) digest() string { return fmt.Sprintf("@sha256:%064d", 900+g.IntN(3)) }

// cluster is a pool with all that it is made of.
func (g *deeds) cluster() []client.Object {
	out := []client.Object{
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: deedPool}, Spec: mcfgv1.MachineConfigPoolSpec{
			NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}},
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: deedPool}}}},
		g.controller(),
	}
	for i := range deedConfigs {
		out = append(out, g.machineConfig(i))
	}
	if g.often(60) {
		out = append(out, g.layering())
	}
	if g.often(50) {
		out = append(out, g.policies())
	}
	if g.often(50) {
		out = append(out, g.mirrors())
	}
	return out
}

// change asks for one or two changes of the cluster.
func (g *deeds) change(w *deedWorld) deedChange {
	mosc := w.machineOSConfig()
	if mosc != nil && g.often(5) {
		w.changes = append(w.changes, "opt out")
		return deedChange{optOut: true}
	}
	if mosc == nil && g.often(2) {
		w.changes = append(w.changes, "an OS image by tag")
		return deedChange{files: []client.Object{g.byTag(w)}}
	}
	var out deedChange
	for range 1 + g.IntN(5)/3 {
		var o client.Object
		switch g.IntN(18) {
		default:
			o = g.edited(w, g.IntN(deedConfigs))
		case 3:
			o = g.controller()
		case 4, 5:
			o = g.otherLayering(mosc)
		case 6:
			o = g.policies()
		case 7:
			o = g.mirrors()
		case 8:
			pool := w.pool()
			o = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: deedPool}, Spec: pool.Spec}
			if g.often(50) {
				o.SetAnnotations(map[string]string{manifests.AnnotationRebuildImage: ""})
			}
		}
		gvks, _, err := w.api.Scheme().ObjectKinds(o)
		require.NoError(w, err)
		o.GetObjectKind().SetGroupVersionKind(gvks[0])
		id := gvks[0].Kind + " " + o.GetName()
		w.changes = append(w.changes, id)
		out.files = slices.DeleteFunc(out.files, func(other client.Object) bool {
			return other.GetObjectKind().GroupVersionKind() == gvks[0] && other.GetName() == o.GetName()
		})
		out.files = append(out.files, o)
	}
	return out
}

func (g *deeds) controller() *mcfgv1.ControllerConfig {
	return &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: render.ControllerConfigName,
		Annotations: map[string]string{manifests.AnnotationStandalone: ""}}, Spec: mcfgv1.ControllerConfigSpec{
		BaseOSContainerImage:           "r.example.com/base/os" + g.digest(),
		BaseOSExtensionsContainerImage: "r.example.com/base/extensions" + g.digest(),
		Infra: &configv1.Infrastructure{Status: configv1.InfrastructureStatus{
			ControlPlaneTopology: g.topology}}}}
}

func (g *deeds) layering() *mcfgv1.MachineOSConfig {
	m := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: deedPool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:     mcfgv1.MachineConfigPoolReference{Name: deedPool},
		RenderedImagePushSpec: mcfgv1.ImageTagFormat("r.example.com/os/" + g.pick("worker", "worker", "other") + ":x")}}
	if g.often(70) {
		content := "FROM configs AS final\n" + g.pick("", "RUN true\n", "RUN echo hello\n")
		m.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: content}}
	}
	return m
}

// otherLayering opts in, changes the MachineOSConfig, or asks for a rebuild.
func (g *deeds) otherLayering(now *mcfgv1.MachineOSConfig) *mcfgv1.MachineOSConfig {
	m := g.layering()
	if now != nil && g.often(40) {
		m.Spec = now.Spec
		m.Annotations = map[string]string{manifests.AnnotationRebuild: ""}
	}
	return m
}

// actions are those of a rule, as an annotation writes them.
func (g *deeds) actions() string {
	switch g.IntN(5) {
	case 0:
		return "None"
	case 1:
		return g.pick("Reboot", "None")
	}
	var words []string
	for _, word := range []string{"Drain", "DaemonReload", "Restart app.service", "Reload db.service",
		"Restart z.service"} {
		if g.often(35) {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "Restart app.service"
	}
	return strings.Join(words, ", ")
}

// machineConfig is the i-th MachineConfig with random content.
func (g *deeds) machineConfig(i int) *mcfgv1.MachineConfig {
	c := ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version}}
	for _, path := range []string{"/etc/containers/policy.json", "/etc/app/a.conf", "/etc/app/deep/b.conf", "/etc/db.conf",
		"/etc/kubernetes/credential-providers/x", "/etc/nmstate/openshift/x.yml"} {
		if g.often(50) {
			c.Storage.Files = append(c.Storage.Files, ign35.File{Node: ign35.Node{Path: path},
				FileEmbedded1: ign35.FileEmbedded1{Mode: new([]int{0o644, 0o600}[g.IntN(2)]),
					Contents: machineconfig.Inline([]byte(g.pick("1", "2", "3")))}})
		}
	}
	for _, name := range []string{"app.service", "db.service"} {
		if g.often(30) {
			c.Systemd.Units = append(c.Systemd.Units,
				ign35.Unit{Name: name, Contents: new("[Service]\nExecStart=/bin/" + g.pick("a", "b") + "\n")})
		}
	}
	if g.often(30) {
		c.Passwd.Users = []ign35.PasswdUser{{Name: "core",
			SSHAuthorizedKeys: []ign35.SSHAuthorizedKey{ign35.SSHAuthorizedKey("ssh-ed25519 AAA " + g.pick("one", "two"))}}}
	}
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("5%d-app", i),
		Labels: map[string]string{manifests.LabelRole: deedPool}}}
	if g.often(60) {
		mc.Annotations = map[string]string{manifests.AnnotationOwnPostConfigAction: g.actions()}
	}
	if g.often(15) {
		mc.Spec.OSImageURL = "r.example.com/own/os" + g.digest()
	}
	if g.often(15) {
		mc.Spec.KernelArguments = []string{g.pick("quiet", "nosmt")}
	}
	if g.often(10) {
		mc.Spec.KernelType = g.pick("default", "realtime")
	}
	if g.often(10) {
		mc.Spec.Extensions = []string{g.pick("usbguard", "kerberos")}
	}
	mc.Spec.FIPS = g.often(5)
	if g.often(1) {
		c.Storage.Disks = []ign35.Disk{{Device: "/dev/sdb"}}
	}
	raw, err := machineconfig.Encode(c)
	if err != nil {
		panic(err)
	}
	mc.Spec.Config.Raw = raw
	return mc
}

// edited is a MachineConfig of the cluster with another part of another one, most often with one file, unit or user
// more or less.
func (g *deeds) edited(w *deedWorld, i int) *mcfgv1.MachineConfig {
	have, other := &mcfgv1.MachineConfig{}, g.machineConfig(i)
	require.NoError(w, w.api.Get(w.Context(), client.ObjectKeyFromObject(other), have))
	out := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: other.Name, Labels: other.Labels,
		Annotations: map[string]string{}}, Spec: have.Spec}
	if rule, found := have.Annotations[manifests.AnnotationOwnPostConfigAction]; found {
		out.Annotations[manifests.AnnotationOwnPostConfigAction] = rule
	}
	switch g.IntN(12) {
	case 0:
		out.Spec.OSImageURL = other.Spec.OSImageURL
	case 1:
		out.Spec.KernelArguments, out.Spec.KernelType = other.Spec.KernelArguments, other.Spec.KernelType
	case 2:
		out.Spec.Extensions, out.Spec.FIPS = other.Spec.Extensions, other.Spec.FIPS
	case 3:
		return other
	case 4:
		out.Annotations[manifests.AnnotationOwnPostConfigAction] = g.actions()
	default:
		config := parse(w.T, have)
		g.edit(&config, parse(w.T, other))
		raw, err := machineconfig.Encode(config)
		require.NoError(w, err)
		out.Spec.Config.Raw = raw
	}
	return out
}

// byTag is the cluster's last MachineConfig with an osImageURL that nodes refuse.
func (g *deeds) byTag(w *deedWorld) *mcfgv1.MachineConfig {
	out := g.edited(w, deedConfigs-1)
	out.Spec.OSImageURL = "r.example.com/own/os:9.6"
	out.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfig"))
	return out
}

// edit takes one file, unit or user of another config, or drops one.
func (g *deeds) edit(c *ign35.Config, other ign35.Config) {
	switch g.IntN(4) {
	case 0:
		c.Systemd.Units = other.Systemd.Units
	case 1:
		c.Passwd.Users = other.Passwd.Users
	default:
		if len(c.Storage.Files) > 0 && g.often(70) {
			at := g.IntN(len(c.Storage.Files))
			c.Storage.Files = slices.Delete(slices.Clone(c.Storage.Files), at, at+1)
		}
		for _, f := range other.Storage.Files {
			if !slices.ContainsFunc(c.Storage.Files, func(o ign35.File) bool { return o.Path == f.Path }) {
				c.Storage.Files = append(c.Storage.Files, f)
				return
			}
		}
	}
}

func (g *deeds) policies() *opv1.MachineConfiguration {
	m := &opv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	m.Spec.ManagementState = opv1.Managed
	actions := func() []opv1.NodeDisruptionPolicySpecAction {
		parsed, err := postconfig.ParseActions(g.actions())
		if err != nil {
			panic(err)
		}
		var out []opv1.NodeDisruptionPolicySpecAction
		for _, a := range parsed {
			x := opv1.NodeDisruptionPolicySpecAction{Type: opv1.NodeDisruptionPolicySpecActionType(a.Type)}
			switch a.Type {
			case postconfig.Restart:
				x.Restart = &opv1.RestartService{ServiceName: opv1.NodeDisruptionPolicyServiceName(a.Service)}
			case postconfig.Reload:
				x.Reload = &opv1.ReloadService{ServiceName: opv1.NodeDisruptionPolicyServiceName(a.Service)}
			}
			out = append(out, x)
		}
		return out
	}
	for _, path := range []string{"/etc/app", "/etc/app/deep/b.conf", "/etc/db.conf", "/etc/containers/policy.json",
		"/etc"} {
		if g.often(35) {
			m.Spec.NodeDisruptionPolicy.Files = append(m.Spec.NodeDisruptionPolicy.Files,
				opv1.NodeDisruptionPolicySpecFile{Path: path, Actions: actions()})
		}
	}
	for _, unit := range []string{"app.service", "db.service"} {
		if g.often(40) {
			m.Spec.NodeDisruptionPolicy.Units = append(m.Spec.NodeDisruptionPolicy.Units,
				opv1.NodeDisruptionPolicySpecUnit{Name: opv1.NodeDisruptionPolicyServiceName(unit), Actions: actions()})
		}
	}
	if g.often(30) {
		m.Spec.NodeDisruptionPolicy.SSHKey.Actions = actions()
	}
	if g.often(30) {
		m.Annotations = map[string]string{manifests.AnnotationMirrorPolicy: "ImageDigestMirrorSet=" + g.pick("None", "Drain")}
	}
	return m
}

func (g *deeds) mirrors() *configv1.ImageDigestMirrorSet {
	m := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "mirrors"}}
	for _, source := range []string{"a.example.com/b", "c.example.com/d"} {
		if !g.often(60) {
			continue
		}
		set := configv1.ImageDigestMirrors{Source: source}
		for _, mirror := range []string{"m.example.com/b", "n.example.com/b"} {
			if g.often(60) {
				set.Mirrors = append(set.Mirrors, configv1.ImageMirror(mirror))
			}
		}
		if g.often(20) {
			set.MirrorSourcePolicy = configv1.NeverContactSource
		}
		m.Spec.ImageDigestMirrors = append(m.Spec.ImageDigestMirrors, set)
	}
	return m
}
