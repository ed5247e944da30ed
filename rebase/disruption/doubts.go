package disruption

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Doubts says what is probably wrong with an admin's rules although they can be carried out. units are those that the
// pools' rendered configs define; what the cluster's own rules name is taken to be in the OS image.
func Doubts(user Policies, units map[string]bool) []string {
	known := func(name string) bool { return units[name] || units[template(name)] }
	defaults, err := Defaults()
	if err == nil {
		for _, r := range slices.Concat(defaults.Files, defaults.Units) {
			for _, a := range r.Actions {
				if a.Service != "" && !units[a.Service] {
					units = with(units, a.Service)
				}
			}
		}
	}
	var out []string
	for _, r := range user.Files {
		out = append(out, undefinedServices("files["+r.Name+"]", r, known)...)
		if r.Name == registriesConf {
			out = append(out, fmt.Sprintf("files[%s]: the rule replaces the cluster's own, which drains for changes that could "+
				"let an image come from elsewhere: nothing drains for them now unless the rule does; rules for "+
				"registries.conf#KIND change single kinds", r.Name))
		}
	}
	for _, r := range user.Units {
		out = append(out, doubtsOfUnit(r, known)...)
	}
	if user.SSHKey != nil {
		out = append(out, undefinedServices("sshkey", *user.SSHKey, known)...)
	}
	return out
}

func doubtsOfUnit(r Rule, known func(unit string) bool) []string {
	place := "units[" + r.Name + "]"
	out := undefinedServices(place, r, known)
	if !known(r.Name) {
		out = append(out, fmt.Sprintf("%s: no rendered config defines this unit: the rule has no effect yet", place))
	}
	restarts := slices.ContainsFunc(r.Actions, func(a Action) bool { return a.Type == Restart || a.Type == Reload })
	if restarts && !slices.Contains(r.Actions, Action{Type: DaemonReload}) {
		out = append(out, fmt.Sprintf("%s: systemd reads a changed unit file only after DaemonReload: without it the "+
			"restart "+
			"runs the old one", place))
	}
	return out
}

// undefinedServices are doubts about actions on units that no rendered config defines.
func undefinedServices(place string, r Rule, known func(unit string) bool) []string {
	var out []string
	for _, a := range r.Actions {
		if a.Service != "" && !known(a.Service) {
			out = append(out, fmt.Sprintf("%s: %s: no rendered config defines the unit %s; that is right only if it comes with "+
				"the OS image", place, a, a.Service))
		}
	}
	return out
}

// template is the unit that an instance such as getty@tty1.service is made of.
func template(name string) string {
	stem, rest, instance := strings.Cut(name, "@")
	dot := strings.LastIndexByte(rest, '.')
	if !instance || dot < 0 {
		return name
	}
	return stem + "@" + rest[dot:]
}

func with(units map[string]bool, name string) map[string]bool {
	out := map[string]bool{name: true}
	maps.Copy(out, units)
	return out
}
