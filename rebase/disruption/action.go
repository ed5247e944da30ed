package disruption

import (
	"cmp"
	"slices"

	"dayone.dev/dayone/manifests/postconfig"
)

// The grammar of actions and rules is that of manifests/postconfig, which the renderer speaks, too.
type (
	// ActionType is what is done to a node after a change.
	ActionType = postconfig.ActionType
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
	Special      = postconfig.Special
)

// rank is the order in which actions are carried out.
func rank(t ActionType) int {
	return slices.Index([]ActionType{Drain, DaemonReload, Restart, Reload, Reboot}, t)
}

// ordered puts actions into the order in which they are carried out, each once: drain, daemon-reload, restarts and
// reloads by the unit's name, reboot. A reboot is preceded by a drain and makes the others idle; a restart makes a
// reload of the same unit idle.
func ordered(actions []Action) []Action {
	if slices.Contains(actions, Action{Type: Reboot}) {
		return []Action{{Type: Drain}, {Type: Reboot}}
	}
	var out []Action
	for _, a := range actions {
		idle := a.Type == None || (a.Type == Reload && slices.Contains(actions, Action{Type: Restart, Service: a.Service}))
		if !idle && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, compare)
	return out
}

// compare orders actions as they are carried out.
func compare(a, b Action) int {
	return cmp.Or(cmp.Compare(rank(a.Type), rank(b.Type)), cmp.Compare(a.Service, b.Service))
}
