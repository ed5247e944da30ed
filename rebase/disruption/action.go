package disruption

import (
	"cmp"
	"slices"

	"dayone.dev/dayone/manifests/postconfig"
)

// The grammar of actions and rules is that of manifests/postconfig, which the renderer speaks, too.
type (
	// Action is one thing to do.
	Action = postconfig.Action
	// Rule is what follows a change of one file, directory or unit, or of the SSH keys.
	Rule = postconfig.Rule
	// Origin says who gave a rule.
	Origin = postconfig.Origin
)

// The actions.
const (
	None         = postconfig.None
	Drain        = postconfig.Drain
	DaemonReload = postconfig.DaemonReload
	Restart      = postconfig.Restart
	Reload       = postconfig.Reload
	Reboot       = postconfig.Reboot
	SoftReboot   = postconfig.SoftReboot
	Special      = postconfig.Special
)

// ordered puts lists of actions, one for each change, into the steps that are carried out. Each list runs in its own
// order, as the API says: what stands there twice is done twice. The lists follow each other as the changes do; one
// that another list has in its order adds nothing, because all files are in place before the first step. Drains come
// first: a node is drained before its files change. A reboot is preceded by a drain and makes all others idle; how the
// node carries it out is no step of its own.
func ordered(lists ...[]Action) []Action {
	all := slices.Concat(lists...)
	if slices.ContainsFunc(all, Action.Reboots) {
		return []Action{{Type: Drain}, {Type: Reboot}}
	}
	var out []Action
	if slices.ContainsFunc(all, func(a Action) bool { return a.Type == Drain }) {
		out = append(out, Action{Type: Drain})
	}
	for _, list := range distinct(lists) {
		out = append(out, list...)
	}
	return out
}

// distinct gives the lists without drains and without what is nothing to do, and of these those that no other one has
// in its order.
func distinct(lists [][]Action) [][]Action {
	var out [][]Action
	for _, list := range lists {
		list = slices.DeleteFunc(slices.Clone(list), func(a Action) bool { return a.Type == None || a.Type == Drain })
		if slices.ContainsFunc(out, func(other []Action) bool { return within(list, other) }) {
			continue
		}
		out = append(slices.DeleteFunc(out, func(other []Action) bool { return within(other, list) }), list)
	}
	return out
}

// within tells whether a list has all actions of another one in their order.
func within(part, list []Action) bool {
	for _, a := range list {
		if len(part) > 0 && part[0] == a {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// compare orders the counts of steps of several nodes: drain, what acts on services, reboot.
func compare(a, b Action) int {
	phases := []postconfig.ActionType{Drain, DaemonReload, Restart, Reload, Reboot}
	return cmp.Or(cmp.Compare(slices.Index(phases, a.Type), slices.Index(phases, b.Type)),
		cmp.Compare(a.Service, b.Service))
}
