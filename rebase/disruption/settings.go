package disruption

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/postconfig"
)

// Settings are what the MachineConfiguration says, merged with the cluster's own rules.
type Settings struct {
	// Actor is whose rules they are.
	Actor Actor
	// Policies are the merged rules, User the admin's alone.
	Policies, User Policies
	Mirrors        MirrorPolicy
	// Undrained says that no node is drained (Undrained).
	Undrained bool
	// Refused are the settings that cannot be used, in words; they count as not set.
	Refused []string
	// WithoutEffect are the settings that dayone has no part in, in words.
	WithoutEffect []string
}

// Read reads the MachineConfiguration; nil is one that says nothing. It fails only for a fault of the program.
func Read(object *opv1.MachineConfiguration) (Settings, error) {
	var s Settings
	var err error
	if s.Policies, err = Defaults(); err != nil || object == nil {
		return s, err
	}
	if s.User, err = FromSpec(object.Spec.NodeDisruptionPolicy); err != nil {
		s.Refused = strings.Split(err.Error(), "\n")
	}
	s.Policies = s.Policies.Override(s.User)
	s.Policies.FirstBootOnly = object.Spec.IrreconcilableValidationOverrides.Storage
	s.WithoutEffect = withoutEffect(&object.Spec)
	if text, found := object.Annotations[manifests.AnnotationMirrorPolicy]; found {
		if s.Mirrors, err = ParseMirrorPolicy(text); err != nil {
			s.Refused = append(s.Refused, fmt.Sprintf("annotation %s: %v", manifests.AnnotationMirrorPolicy, err))
		}
	}
	if own := s.User.mirrors(); len(own) > 0 {
		if s.Mirrors == nil {
			s.Mirrors = own
		} else {
			maps.Copy(s.Mirrors, own) // a rule counts more than the annotation of earlier versions
		}
	}
	return s, nil
}

// Rendered gives the units that a rendered config defines and the rules of its owners.
func Rendered(mc *mcfgv1.MachineConfig) (units []string, owners Policies, err error) {
	config, err := machineconfig.ParseRendered3(mc.Spec.Config.Raw)
	if err != nil {
		return nil, owners, fmt.Errorf("read rendered config %s: %w", mc.Name, err)
	}
	for _, u := range config.Systemd.Units {
		units = append(units, u.Name)
	}
	rules, err := postconfig.Decode(mc.Annotations)
	if err != nil {
		return nil, owners, fmt.Errorf("read rendered config %s: %w", mc.Name, err)
	}
	return units, Policies{Files: rules.Files, Units: rules.Units}, nil
}

// PublishedRule is one rule for people and programs that look at a cluster.
type PublishedRule struct {
	// Kind is file, which means a directory too, unit or sshkey.
	Kind    string `json:"kind"`
	Name    string `json:"name,omitempty"`
	Actions string `json:"actions"`
	Origin  Origin `json:"origin"`
	// Pool is set for rules of owners of MachineConfigs: they hold in that pool.
	Pool string `json:"pool,omitempty"`
	// Effect is the level of a change that only this rule is for; two levels where the change itself decides. A reboot
	// that may be soft says so.
	Effect string `json:"effect"`
	// Nodes is how many nodes the pools' targets change under this rule now; absent: nobody has counted.
	Nodes *int `json:"nodes,omitempty"`
}

// Applies tells whether a change is made under this rule.
func (r PublishedRule) Applies(c Change) bool {
	return c.Rule != nil && string(c.Kind) == r.Kind && c.Rule.Name == r.Name && c.Rule.Origin == r.Origin
}

// effectInWords is the level of a rule's actions.
func effectInWords(r Rule) string {
	p := Plan{Changes: []Change{{}}, Steps: ordered(r.Actions)}
	if slices.Contains(r.Actions, Action{Type: Special}) {
		return LevelReload.String() + " or " + LevelDrain.String()
	}
	if slices.Contains(r.Actions, Action{Type: SoftReboot}) {
		return LevelReboot.String() + ", soft where pool and node allow it"
	}
	return level(p).String()
}

// Published lists rules in their order.
func (p Policies) Published(pool string) []PublishedRule {
	var out []PublishedRule
	add := func(kind Kind, r Rule) {
		words := make([]string, 0, len(r.Actions))
		for _, a := range r.Actions {
			words = append(words, a.String())
		}
		out = append(out, PublishedRule{Kind: string(kind), Name: r.Name, Actions: strings.Join(words, ", "),
			Origin: r.Origin, Pool: pool, Effect: effectInWords(r)})
	}
	for _, r := range p.Files {
		add(KindFile, r)
	}
	for _, r := range p.Units {
		add(kindUnit, r)
	}
	if p.SSHKey != nil {
		add(kindSSHKey, *p.SSHKey)
	}
	return out
}
