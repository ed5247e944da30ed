package disruption

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy"
)

// ImageChange says how a layered node's image changes.
type ImageChange string

const (
	// ImageSame: there is no other image.
	ImageSame ImageChange = ""
	// ImageConfig: the new image differs only in the config that it carries; base and Containerfile are the same.
	ImageConfig ImageChange = "config"
	// ImageContent: base, Containerfile or extensions differ: only a reboot brings that.
	ImageContent ImageChange = "content"
)

// Input is everything that the effect depends on. Old and New are required.
type Input struct {
	// Old is the rendered config that the node has, New the one that it is to have.
	Old, New *mcfgv1.MachineConfig
	// Layered nodes take files, units and kernel arguments from their image.
	Layered bool
	// Image is the change of a layered node's image, or of a node that becomes or ceases to be layered (ImageContent).
	Image ImageChange
	// Policies are the cluster's, merged with the admin's: Defaults and FromSpec.
	Policies Policies
	// Mirrors says which changes of registries.conf need no drain.
	Mirrors MirrorPolicy
	// Actor is whose rules hold. Plain: the node is to have no image of its own, so that it boots its config's osImageURL.
	// Reverts: it had one. Undrained leaves drains out.
	Actor                     Actor
	Plain, Reverts, Undrained bool
}

// Level is how much a plan disturbs, from least to most. Its number is the exit code of the plan commands.
type Level int

const (
	// LevelNothing: nothing changes on the node.
	LevelNothing Level = 0
	// LevelQuiet: something changes, and no service and no pod notices.
	LevelQuiet Level = 1
	// LevelReload: units are reloaded or restarted.
	LevelReload Level = 2
	// LevelDrain: pods leave the node.
	LevelDrain Level = 3
	// LevelReboot: the node reboots.
	LevelReboot Level = 4
	// LevelImpossible: something cannot be applied to a node that has been installed.
	LevelImpossible Level = 5
)

// levelNames are the levels' names, in their order.
func levelNames() []string {
	return []string{"Nothing", "Quiet", "Reload", "Drain", "Reboot", "Impossible"}
}

// String gives the level's name as the gate annotation writes it.
func (l Level) String() string {
	if names := levelNames(); l >= 0 && int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// MarshalText gives the name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name. One that is not known is a newer version's, and counts as the worst.
func (l *Level) UnmarshalText(text []byte) error {
	known, err := parseLevel(string(text))
	if err != nil {
		known = LevelImpossible
	}
	*l = known
	return nil
}

// parseLevel reads a name that a person has written.
func parseLevel(text string) (Level, error) {
	i := slices.Index(levelNames(), text)
	if i < 0 {
		return 0, fmt.Errorf("read level %q: levels are %s", text, strings.Join(levelNames(), ", "))
	}
	return Level(i), nil
}

// Plan is what a change does to one node.
type Plan struct {
	// Level is how much it disturbs the node.
	Level Level `json:"level"`
	// Changes are in the order file, unit, sshkey, directory, link, other, os, image; by name within each.
	Changes []Change `json:"changes"`
	// Steps are in the order in which they are carried out.
	Steps []Action `json:"steps"`
	// Live tells that a layered node's files are also written to the running system, because it does not reboot into the
	// new image now.
	Live bool `json:"live,omitempty"`
	// Stage tells that a layered node gets a new image, at once or at its next reboot.
	Stage bool `json:"stage,omitempty"`
	// Impossible are changes that only a new installation brings, in words.
	Impossible []string `json:"impossible,omitempty"`
}

// Effect computes the plan. It fails for a config that cannot be read.
func Effect(in Input) (Plan, error) {
	before, err := read(in.Old)
	if err != nil {
		return Plan{}, err
	}
	after, err := read(in.New)
	if err != nil {
		return Plan{}, err
	}
	if in.Actor == ActorMCO {
		return in.undrained(effectOfMCO(in, before, after)), nil
	}
	e := &effect{Input: in, before: before, after: after}
	// A removed file belongs to the rules of the config that had it. The admin's and the cluster's own rules are compared
	// by path with the owner's: the admin's replace them, and they replace the cluster's.
	e.files()
	if e.err != nil {
		return Plan{}, e.err
	}
	e.units()
	e.passwd()
	e.storage()
	e.os()
	e.bootable()
	return in.undrained(e.plan()), nil
}

// Undrained says whether no node is drained: where the control plane is one node, its pods have nowhere to go, and a
// PodDisruptionBudget would hold it up for ever. The kubelet ends them when the node shuts down (MCO,
// pkg/daemon/drain.go).
func Undrained(controlPlane configv1.TopologyMode) bool {
	return controlPlane == configv1.SingleReplicaTopologyMode
}

func (in Input) undrained(p Plan) Plan {
	if !in.Undrained {
		return p
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(a Action) bool { return a.Type == Drain })
	p.Level = level(p)
	return p
}

type effect struct {
	Input
	before, after side
	changes       []Change
	impossible    []string
	err           error
}

// rules gives the policies with the template owners' rules in their place: above the cluster's own, below the admin's.
// An admin's rule for a directory covers the owners' files below it, too: those have no rule of their own then.
func (e *effect) rules(templates Policies) Policies {
	return e.Policies.Override(e.Policies.InForce(templates))
}

func (e *effect) files() {
	added, removed := e.rules(e.after.templates), e.rules(e.before.templates)
	for _, name := range keys(e.before.files, e.after.files) {
		was, had := e.before.files[name]
		is, has := e.after.files[name]
		what := presence(had, has)
		rules := added
		if !has {
			rules = removed
		}
		if what == "" {
			if what, e.err = fileChange(was, is); e.err != nil {
				return
			}
		}
		if what == "" {
			continue
		}
		c := Change{Kind: KindFile, Name: name, What: what}
		clean := path.Clean(name)
		if r, found := rules.file(clean); found {
			c.apply(r, fmt.Sprintf("policy for %s", r.Name))
			e.special(&c, was, is)
		} else if why := keptByAgent(clean); why != "" {
			c.Why = why
		} else {
			c.reboot("no policy covers this path")
		}
		e.changes = append(e.changes, c)
	}
}

// special resolves the action of the cluster's own policy for registries.conf.
func (e *effect) special(c *Change, was, is ign35.File) {
	if !slices.Contains(c.Actions, Action{Type: Special}) {
		return
	}
	c.Actions = []Action{{Type: Reload, Service: "crio.service"}}
	if c.Name != registriesConf {
		return
	}
	before, errBefore := machineconfig.Contents(was.Contents)
	after, errAfter := machineconfig.Contents(is.Contents)
	if errBefore != nil || errAfter != nil {
		c.Actions = append(c.Actions, Action{Type: Drain})
		c.Why += "; its contents are not inline, so they cannot be judged: drain"
		return
	}
	c.Mirrors = CompareMirrors(before, after)
	for _, m := range c.Mirrors {
		if m.Unsafe && !e.Mirrors[m.Kind] {
			c.Actions = append(c.Actions, Action{Type: Drain})
			c.Why += fmt.Sprintf("; drain because images could come from elsewhere: %s", m.What)
			return
		}
	}
	c.Why += "; no drain: every image keeps its source, or the admin allows the change"
}

func (c *Change) apply(r Rule, why string) {
	c.Rule, c.Actions, c.Why = &r, slices.Clone(r.Actions), fmt.Sprintf("%s (%s)", why, r.Origin)
}

func (c *Change) reboot(why string) {
	c.Actions, c.Why = []Action{{Type: Reboot}}, why
}

func (e *effect) units() {
	added, removed := e.rules(e.after.templates), e.rules(e.before.templates)
	for _, name := range keys(e.before.units, e.after.units) {
		was, had := e.before.units[name]
		is, has := e.after.units[name]
		what := presence(had, has)
		if what == "" {
			what = unitChange(was, is)
		}
		if what == "" {
			continue
		}
		rules := added
		if !has {
			rules = removed
		}
		c := Change{Kind: kindUnit, Name: name, What: what}
		if r, found := rules.unit(name); found {
			c.apply(r, "policy for this unit")
		} else {
			c.reboot("no policy covers this unit")
		}
		e.changes = append(e.changes, c)
	}
}

func (e *effect) passwd() {
	what, others := users(e.before.config, e.after.config)
	if what != "" {
		c := Change{Kind: kindSSHKey, Name: coreUser, What: what}
		if e.Policies.SSHKey != nil {
			c.apply(*e.Policies.SSHKey, "policy for SSH keys")
		} else {
			c.reboot("no policy covers SSH keys")
		}
		e.changes = append(e.changes, c)
	}
	for _, name := range others {
		e.cannot(kindOther, name)
	}
}

// cannot notes what only a new installation brings.
func (e *effect) cannot(kind Kind, name string) {
	e.changes = append(e.changes, Change{Kind: kind, Name: name, What: "changed",
		Why: "only Ignition applies it, at a node's first boot"})
	e.impossible = append(e.impossible,
		fmt.Sprintf("%s: only Ignition applies it, at a node's first boot: install the node anew, or undo the change", name))
}

// storage compares what is neither file, unit nor user.
func (e *effect) storage() {
	was, is := e.before.config, e.after.config
	trees := []struct {
		kind     Kind
		name     string
		was, is  any
		emptyWas bool
	}{
		{kindDirectory, "directories", was.Storage.Directories, is.Storage.Directories,
			len(was.Storage.Directories)+len(is.Storage.Directories) == 0},
		{kindLink, "links", was.Storage.Links, is.Storage.Links, len(was.Storage.Links)+len(is.Storage.Links) == 0},
	}
	for _, t := range trees {
		if t.emptyWas || reflect.DeepEqual(t.was, t.is) {
			continue
		}
		if !e.Layered {
			e.cannot(t.kind, t.name)
			continue
		}
		c := Change{Kind: t.kind, Name: t.name, What: "changed"}
		c.reboot("they come with the image")
		e.changes = append(e.changes, c)
	}
	for _, o := range []struct {
		name    string
		was, is any
	}{
		{"disks", was.Storage.Disks, is.Storage.Disks}, {"filesystems", was.Storage.Filesystems, is.Storage.Filesystems},
		{"raid", was.Storage.Raid, is.Storage.Raid}, {"luks", was.Storage.Luks, is.Storage.Luks},
		{"ignition.kernelArguments", was.KernelArguments, is.KernelArguments},
	} {
		switch {
		case sameOrEmpty(o.was, o.is):
		case e.Policies.FirstBootOnly.covers(o.name):
			e.changes = append(e.changes, Change{Kind: kindOther, Name: o.name, What: "changed",
				Why: "new nodes get it at their first boot: irreconcilableValidationOverrides allow it"})
		default:
			e.cannot(kindOther, o.name)
		}
	}
}

// sameOrEmpty takes a missing list for an empty one.
func sameOrEmpty(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0
}

func (e *effect) os() {
	was, is := e.before.spec, e.after.spec
	add := func(changed bool, name, what, why string) {
		if changed {
			c := Change{Kind: kindOS, Name: name, What: what}
			c.reboot(why)
			e.changes = append(e.changes, c)
		}
	}
	pair := func(a, b any) string { return fmt.Sprintf("%v becomes %v", a, b) }
	// A layered node runs the image that was built, whatever its base is called; a change of the base comes as another
	// image.
	add(!e.Layered && was.OSImageURL != is.OSImageURL, "osImageURL", pair(was.OSImageURL, is.OSImageURL),
		"another OS image")
	add(!sameOrEmpty(was.KernelArguments, is.KernelArguments), "kernelArguments",
		pair(was.KernelArguments, is.KernelArguments), "the kernel reads them when it starts")
	add(was.FIPS != is.FIPS, "fips", pair(was.FIPS, is.FIPS), "the kernel reads it when it starts")
	add(kernelType(was) != kernelType(is), "kernelType", pair(kernelType(was), kernelType(is)), "another kernel")
	add(!sameOrEmpty(was.Extensions, is.Extensions), "extensions", pair(was.Extensions, is.Extensions),
		"other packages of the OS")
	if e.Image == ImageContent {
		c := Change{Kind: kindImage, Name: "image", What: "changed"}
		c.reboot("its base, its Containerfile or its extensions differ")
		e.changes = append(e.changes, c)
	}
}

// bootable says that a node refuses the osImageURL that it is to boot next: by a tag each node could get another image.
func (e *effect) bootable() {
	is := e.after.spec.OSImageURL
	if !e.Plain || is == "" || is == e.before.spec.OSImageURL && !e.Reverts {
		return
	}
	if _, err := deploy.ParseImage(is); err != nil {
		e.impossible = append(e.impossible, fmt.Sprintf("osImageURL: nodes refuse it, because it must give all of them the "+
			"same image: %v", err))
	}
}

// kernelType takes the default for what it is.
func kernelType(s mcfgv1.MachineConfigSpec) string {
	if s.KernelType == "" {
		return "default"
	}
	return s.KernelType
}

func (e *effect) plan() Plan {
	p := Plan{Changes: e.changes, Impossible: e.impossible, Stage: e.Image != ImageSame}
	lists := make([][]Action, 0, len(e.changes))
	for _, c := range e.changes {
		lists = append(lists, c.Actions)
	}
	p.Steps = ordered(lists...)
	p.Level = level(p)
	p.Live = e.Layered && len(p.Changes) > 0 && p.Level < LevelReboot
	return p
}

// Join gives the plan of a node of which it is not known from which of two configs it comes: it was on the way from the
// one to the other. It does what either plan does.
func Join(a, b Plan) Plan {
	out := Plan{Changes: slices.Concat(a.Changes, b.Changes), Impossible: slices.Concat(a.Impossible, b.Impossible),
		Stage: a.Stage || b.Stage}
	out.Steps = ordered(a.Steps, b.Steps)
	if drain := (Action{Type: Drain}); !slices.Contains(a.Steps, drain) && !slices.Contains(b.Steps, drain) {
		out.Steps = slices.DeleteFunc(out.Steps, func(s Action) bool { return s == drain }) // a reboot brings one along
	}
	out.Level = max(a.Level, b.Level)
	out.Live = (a.Live || b.Live) && out.Level < LevelReboot
	return out
}

func level(p Plan) Level {
	switch {
	case len(p.Impossible) > 0:
		return LevelImpossible
	case len(p.Steps) > 0:
		l := LevelReload
		for _, s := range p.Steps {
			switch s.Type {
			case Drain:
				l = max(l, LevelDrain)
			case Reboot:
				l = max(l, LevelReboot)
			}
		}
		return l
	case len(p.Changes) > 0 || p.Stage:
		return LevelQuiet
	}
	return LevelNothing
}
