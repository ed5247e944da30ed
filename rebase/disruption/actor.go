package disruption

import (
	"fmt"
	"path"
	"slices"
	"strings"

	opv1 "github.com/openshift/api/operator/v1"
)

// Actor is whose controllers and agents bring nodes to their targets. Their rules differ.
type Actor string

const (
	// ActorDayone: dayone's.
	ActorDayone Actor = ""
	// ActorMCO: those of the Machine Config Operator.
	ActorMCO Actor = "machine-config-operator"
)

// ReadFor reads the MachineConfiguration as the actor does; nil is one that says nothing. It fails only for a fault of
// the program.
func ReadFor(actor Actor, object *opv1.MachineConfiguration) (Settings, error) {
	if actor != ActorMCO {
		return Read(object)
	}
	s := Settings{Actor: actor}
	var err error
	if s.Policies, err = Defaults(); err != nil || object == nil {
		return s, err
	}
	s.User = specOfMCO(object.Spec.NodeDisruptionPolicy)
	// MCO takes the paths as they are written.
	s.Policies = s.Policies.Override(s.User)
	if published := object.Status.NodeDisruptionPolicyStatus.ClusterPolicies; len(published.Files) > 0 &&
		object.Status.ObservedGeneration == object.Generation {
		s.Policies = inForce(published, s.User) // its own defaults may be those of another version
	}
	s.Policies.FirstBootOnly = object.Spec.IrreconcilableValidationOverrides.Storage
	return s, nil
}

// specOfMCO reads the admin's rules and checks nothing, like MCO.
func specOfMCO(c opv1.NodeDisruptionPolicyConfig) (p Policies) {
	rule := func(name string, actions []opv1.NodeDisruptionPolicySpecAction) Rule {
		r := Rule{Name: name, Origin: OriginUser}
		for _, a := range actions {
			r.Actions = append(r.Actions, fromAPI(a.Type, a.Reload, a.Restart))
		}
		return r
	}
	for _, f := range c.Files {
		p.Files = append(p.Files, rule(f.Path, f.Actions))
	}
	for _, u := range c.Units {
		p.Units = append(p.Units, rule(string(u.Name), u.Actions))
	}
	if len(c.SSHKey.Actions) > 0 {
		r := rule("", c.SSHKey.Actions)
		p.SSHKey = &r
	}
	return p
}

// inForce reads the rules that MCO says are in force; p are the admin's, by which each one's origin is known.
func inForce(s opv1.NodeDisruptionPolicyClusterStatus, p Policies) (out Policies) {
	rule := func(name string, actions []opv1.NodeDisruptionPolicyStatusAction, own []Rule) Rule {
		r := Rule{Name: name, Origin: OriginDefault}
		if slices.ContainsFunc(own, func(o Rule) bool { return o.Name == name }) {
			r.Origin = OriginUser
		}
		for _, a := range actions {
			r.Actions = append(r.Actions, fromAPI(opv1.NodeDisruptionPolicySpecActionType(a.Type), a.Reload, a.Restart))
		}
		return r
	}
	for _, f := range s.Files {
		out.Files = append(out.Files, rule(f.Path, f.Actions, p.Files))
	}
	for _, u := range s.Units {
		out.Units = append(out.Units, rule(string(u.Name), u.Actions, p.Units))
	}
	keys := rule("", s.SSHKey.Actions, nil)
	if p.SSHKey != nil {
		keys.Origin = OriginUser
	}
	out.SSHKey = &keys
	return out
}

// closest gives the rule that MCO takes for a file: the longest path, as it is written, that is the file's or a
// directory above it. The paths "/" and "" cover nothing.
func closest(files []Rule, name string) (best Rule, found bool) {
	for _, r := range files {
		covers := r.Name == name || strings.HasPrefix(path.Clean(name), path.Clean(r.Name)+"/")
		if covers && len(r.Name) > len(best.Name) {
			best, found = r, true
		}
	}
	return best, found
}

// inOrderOfMCO puts the actions of the changes into the steps that MCO's daemon carries out: a reboot makes all others
// idle; else they follow each other as the changes do, and what two changes ask for is done twice.
func inOrderOfMCO(changes []Change, reverts bool) []Action {
	var all, out []Action
	for _, c := range changes {
		all = append(all, c.Actions...)
	}
	has := func(t ...Action) bool {
		return slices.ContainsFunc(all, func(a Action) bool { return slices.Contains(t, a) })
	}
	switch {
	case has(Action{Type: Reboot}) && reverts:
		// It writes the files anew on the boot without the image, and boots again.
		return []Action{{Type: Drain}, {Type: Reboot}, {Type: Reboot}}
	case has(Action{Type: Reboot}):
		return []Action{{Type: Drain}, {Type: Reboot}}
	case has(Action{Type: Drain}):
		out = append(out, Action{Type: Drain})
	}
	return append(out, slices.DeleteFunc(all, func(a Action) bool { return a.Type == None || a.Type == Drain })...)
}

// boots is how often the node boots.
func (p Plan) boots() (n int) {
	for _, s := range p.Steps {
		if s.Type == Reboot {
			n++
		}
	}
	return n
}

// unsafeForMCO says why MCO's daemon drains a node because of a changed registries.conf; empty: it does not.
func unsafeForMCO(before, after []byte) string {
	was, err := decodeMirrorFile(before)
	if err != nil {
		return fmt.Sprintf("the present file cannot be read: %v", err)
	}
	is, err := decodeMirrorFile(after)
	if err != nil {
		return fmt.Sprintf("the new file cannot be read: %v", err)
	}
	if len(was.Search) > len(is.Search) || !slices.Equal(was.Search, is.Search[:len(was.Search)]) {
		return "the search list changed other than at its end"
	}
	old, now := byScope(was), byScope(is)
	for _, scope := range keys(old, now) {
		r, had := old[scope]
		n, has := now[scope]
		switch {
		case !has:
			return "registry " + scope + " removed"
		case !had && !n.digestsOnly():
			return "registry " + scope + " added with a mirror that is not for digests only"
		case had:
			if why := r.unsafe(n); why != "" {
				return "registry " + scope + ": " + why
			}
		}
	}
	return ""
}

func byScope(f mirrorFile) map[string]registry {
	out := map[string]registry{}
	for _, r := range f.Registries {
		if r.Prefix != "" {
			out[r.Prefix] = r
		} else {
			out[r.Location] = r
		}
	}
	return out
}

func (r registry) digestsOnly() bool {
	if len(r.Mirrors) == 0 {
		return r.DigestOnly
	}
	return !slices.ContainsFunc(r.Mirrors, func(m mirror) bool { return m.Pull != digestOnly })
}

// unsafe is how MCO's daemon judges a changed registry.
func (r registry) unsafe(now registry) string {
	if r.Prefix != now.Prefix || r.Location != now.Location || r.Blocked != now.Blocked || r.Insecure != now.Insecure {
		return "prefix, location, blocked or insecure changed"
	}
	find := func(in []mirror, location string) (mirror, bool) {
		i := slices.IndexFunc(in, func(m mirror) bool { return m.Location == location })
		if i < 0 {
			return mirror{}, false
		}
		return in[i], true
	}
	for _, m := range r.Mirrors {
		if _, stays := find(now.Mirrors, m.Location); !stays {
			return "mirror " + m.Location + " removed"
		}
	}
	for _, m := range now.Mirrors {
		was, had := find(r.Mirrors, m.Location)
		if had && m.Pull != was.Pull && m.Pull != digestOnly || !had && m.Pull != digestOnly && !now.DigestOnly {
			return "mirror " + m.Location + " is not for digests only"
		}
	}
	return ""
}
