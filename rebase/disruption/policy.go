package disruption

import (
	_ "embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	opv1 "github.com/openshift/api/operator/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests/postconfig"
)

const (
	// OriginDefault rules are the cluster's own (defaults.yaml).
	OriginDefault Origin = "cluster default"
	// OriginUser rules are in spec.nodeDisruptionPolicy of the MachineConfiguration.
	OriginUser Origin = "MachineConfiguration cluster"
)

// Policies are the rules that apply. A file's rule is that of the longest path which is the file's or a directory above
// it.
type Policies struct {
	Files  []Rule `json:"files"`
	Units  []Rule `json:"units"`
	SSHKey *Rule  `json:"sshkey,omitempty"`
	// FirstBootOnly are sections of storage whose changes are for new nodes.
	FirstBootOnly firstBootOnly `json:"firstBootOnly,omitempty"`
}

//go:embed defaults.yaml
var defaultsYAML []byte

// Defaults gives the cluster's own rules.
func Defaults() (Policies, error) {
	var object opv1.MachineConfiguration
	if err := yaml.UnmarshalStrict(defaultsYAML, &object); err != nil {
		return Policies{}, fmt.Errorf("read default policies: %w", err)
	}
	s := object.Status.NodeDisruptionPolicyStatus.ClusterPolicies
	var p Policies
	var errs []error
	add := func(to *[]Rule, name string, actions []opv1.NodeDisruptionPolicyStatusAction) {
		r := Rule{Name: name, Origin: OriginDefault}
		for _, a := range actions {
			r.Actions = append(r.Actions, fromAPI(opv1.NodeDisruptionPolicySpecActionType(a.Type), a.Reload, a.Restart))
		}
		errs = append(errs, postconfig.Validate(r.Actions))
		*to = append(*to, r)
	}
	for _, f := range s.Files {
		add(&p.Files, f.Path, f.Actions)
	}
	for _, u := range s.Units {
		add(&p.Units, string(u.Name), u.Actions)
	}
	var keys []Rule
	add(&keys, "", s.SSHKey.Actions)
	p.SSHKey = &keys[0]
	return p, errors.Join(errs...)
}

func fromAPI(t opv1.NodeDisruptionPolicySpecActionType, reload *opv1.ReloadService,
	restart *opv1.RestartService) Action {
	a := Action{Type: postconfig.ActionType(t)}
	switch {
	case reload != nil:
		a.Service = string(reload.ServiceName)
	case restart != nil:
		a.Service = string(restart.ServiceName)
	}
	return a
}

// FromSpec reads the admin's rules. What is wrong with one of them is in the error, with its place; such a rule is left
// out, so that what it would have covered reboots the node as without it.
func FromSpec(c opv1.NodeDisruptionPolicyConfig) (Policies, error) {
	var p Policies
	var errs []error
	read := func(place, name string, actions []opv1.NodeDisruptionPolicySpecAction, nameErr error) (Rule, bool) {
		r := Rule{Name: name, Origin: OriginUser}
		for _, a := range actions {
			r.Actions = append(r.Actions, fromAPI(a.Type, a.Reload, a.Restart))
		}
		err := errors.Join(nameErr, postconfig.Validate(r.Actions), mirrorFault(r))
		if len(r.Actions) == 0 {
			err = errors.Join(err, errors.New("there is no action: write None if nothing is to be done"))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.nodeDisruptionPolicy.%s: %w", place, err))
		}
		return r, err == nil
	}
	for _, f := range c.Files {
		clean, err := cleanPath(f.Path)
		if r, ok := read(fmt.Sprintf("files[%s]", f.Path), clean, f.Actions, err); ok {
			p.Files = append(p.Files, r)
		}
	}
	for _, u := range c.Units {
		if r, ok := read(fmt.Sprintf("units[%s]", u.Name), string(u.Name), u.Actions,
			postconfig.ValidService(string(u.Name))); ok {
			p.Units = append(p.Units, r)
		}
	}
	if len(c.SSHKey.Actions) > 0 {
		if r, ok := read("sshkey", "", c.SSHKey.Actions, nil); ok {
			p.SSHKey = &r
		}
	}
	p.Files = undisputed(p.Files, "files", &errs)
	p.Units = undisputed(p.Units, "units", &errs)
	return p, errors.Join(errs...)
}

// undisputed leaves out the rules of a name that has two different ones, such as those for /etc/a and /etc/a/: nobody
// can say which of them is meant.
func undisputed(rules []Rule, place string, errs *[]error) []Rule {
	first, disputed := map[string]Rule{}, map[string]bool{}
	var out []Rule
	for _, r := range rules {
		other, twice := first[r.Name]
		switch {
		case !twice:
			first[r.Name] = r
			out = append(out, r)
		case !slices.Equal(other.Actions, r.Actions) && !disputed[r.Name]:
			disputed[r.Name] = true
			*errs = append(*errs,
				fmt.Errorf("spec.nodeDisruptionPolicy.%s[%s]: two entries mean this name and say different things: keep one", place,
					r.Name))
		}
	}
	return slices.DeleteFunc(out, func(r Rule) bool { return disputed[r.Name] })
}

// cleanPath refuses what is no absolute path and takes out what does not matter, such as a slash at the end.
func cleanPath(p string) (string, error) {
	if !path.IsAbs(p) {
		return p, fmt.Errorf("%q is no absolute path", p)
	}
	return path.Clean(p), nil
}

// Override gives p with the rules of by: a rule for the same path or unit is replaced in its place, others are
// appended.
func (p Policies) Override(by Policies) Policies {
	out := Policies{Files: override(p.Files, by.Files), Units: override(p.Units, by.Units), SSHKey: p.SSHKey,
		FirstBootOnly: p.FirstBootOnly}
	if by.SSHKey != nil {
		out.SSHKey = by.SSHKey
	}
	return out
}

func override(rules, by []Rule) []Rule {
	out := make([]Rule, 0, len(rules)+len(by))
	place := make(map[string]int, len(rules)+len(by))
	for _, r := range slices.Concat(rules, by) {
		if i, found := place[r.Name]; found {
			out[i] = r
			continue
		}
		place[r.Name] = len(out)
		out = append(out, r)
	}
	return out
}

// InForce gives those of a pool's owners' rules that no rule of the admin's replaces.
func (p Policies) InForce(owners Policies) Policies {
	user := Policies{Files: ofUser(p.Files), Units: ofUser(p.Units)}
	return Policies{
		Files: without(owners.Files, func(r Rule) bool { return user.covers(r.Name) }),
		Units: without(owners.Units, func(r Rule) bool {
			_, found := user.unit(r.Name)
			return found
		}),
	}
}

// ofUser gives the admin's rules.
func ofUser(rules []Rule) []Rule {
	return without(rules, func(r Rule) bool { return r.Origin != OriginUser })
}

// without gives the rules that out does not name, in a list of their own.
func without(rules []Rule, out func(Rule) bool) []Rule {
	return slices.DeleteFunc(slices.Clone(rules), out)
}

// file gives the rule of a file.
func (p Policies) file(name string) (Rule, bool) {
	best, found := Rule{}, false
	for _, r := range p.Files {
		if covers(r.Name, name) && (!found || len(r.Name) > len(best.Name)) {
			best, found = r, true
		}
	}
	return best, found
}

// covers tells whether a rule is for a file or a directory above it.
func (p Policies) covers(file string) bool {
	_, found := p.file(file)
	return found
}

// covers tells whether a rule's path is the file's or a directory above it.
func covers(rule, file string) bool {
	return rule == file || rule == "/" || strings.HasPrefix(file, rule+"/")
}

func (p Policies) unit(name string) (Rule, bool) {
	for _, r := range p.Units {
		if r.Name == name {
			return r, true
		}
	}
	return Rule{}, false
}

// ClusterStatus gives the rules in the form of the MachineConfiguration's status.
func (p Policies) ClusterStatus() opv1.NodeDisruptionPolicyClusterStatus {
	var out opv1.NodeDisruptionPolicyClusterStatus
	for _, r := range p.Files {
		out.Files = append(out.Files, opv1.NodeDisruptionPolicyStatusFile{Path: r.Name, Actions: toAPI(r.Actions)})
	}
	for _, r := range p.Units {
		out.Units = append(out.Units, opv1.NodeDisruptionPolicyStatusUnit{Name: opv1.NodeDisruptionPolicyServiceName(r.Name),
			Actions: toAPI(r.Actions)})
	}
	if p.SSHKey != nil {
		out.SSHKey.Actions = toAPI(p.SSHKey.Actions)
	}
	return out
}

func toAPI(actions []Action) []opv1.NodeDisruptionPolicyStatusAction {
	out := make([]opv1.NodeDisruptionPolicyStatusAction, 0, len(actions))
	for _, a := range actions {
		s := opv1.NodeDisruptionPolicyStatusAction{Type: opv1.NodeDisruptionPolicyStatusActionType(a.Type)}
		switch a.Type {
		case Reload:
			s.Reload = &opv1.ReloadService{ServiceName: opv1.NodeDisruptionPolicyServiceName(a.Service)}
		case Restart:
			s.Restart = &opv1.RestartService{ServiceName: opv1.NodeDisruptionPolicyServiceName(a.Service)}
		}
		out = append(out, s)
	}
	return out
}
