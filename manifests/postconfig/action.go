package postconfig

import (
	"fmt"
	"strings"

	opv1 "github.com/openshift/api/operator/v1"
)

// ActionType is what is done to a node after a change.
type ActionType string

// The actions, in the API's words (operator.openshift.io/v1 NodeDisruptionPolicyStatusActionType).
const (
	None         = ActionType(opv1.NoneStatusAction)
	Drain        = ActionType(opv1.DrainStatusAction)
	DaemonReload = ActionType(opv1.DaemonReloadStatusAction)
	Restart      = ActionType(opv1.RestartStatusAction)
	Reload       = ActionType(opv1.ReloadStatusAction)
	Reboot       = ActionType(opv1.RebootStatusAction)
	// SoftReboot is dayone's own, for owners of MachineConfigs: a reboot that may leave hardware and kernel running. It is
	// a Reboot where the pool, the node or another change does not allow that.
	SoftReboot = ActionType("SoftReboot")
	// Special stands in the cluster's default policies only: reload CRI-O, and drain if registries.conf changed in a way
	// that could let a running pod's image come from elsewhere.
	Special = ActionType(opv1.SpecialStatusAction)
)

// Action is one thing to do.
type Action struct {
	// Type is what is done.
	Type ActionType `json:"type"`
	// Service is the unit to restart or reload; empty for the other types.
	Service string `json:"service,omitempty"`
}

// Reboots tells whether the node reboots, whichever way.
func (a Action) Reboots() bool { return a.Type == Reboot || a.Type == SoftReboot }

// String gives the action as ParseActions reads it.
func (a Action) String() string {
	if a.Service == "" {
		return string(a.Type)
	}
	return string(a.Type) + " " + a.Service
}

// unitSuffixes are what a unit's name may end in. Source: the API's rule for NodeDisruptionPolicyServiceName.
var unitSuffixes = [...]string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path",
	".timer", ".snapshot", ".slice", ".scope"}

const (
	// maxServiceName and maxActions are the API's limits for a service name, in bytes, and for a list of actions.
	maxServiceName = 255
	maxActions     = 10
)

// validate names what is wrong with an action.
func (a Action) validate() error {
	switch a.Type {
	case None, Drain, DaemonReload, Reboot, SoftReboot, Special:
		if a.Service != "" {
			return fmt.Errorf("%s takes no service", a.Type)
		}
		return nil
	case Restart, Reload:
		return ValidService(a.Service)
	}
	return fmt.Errorf("there is no action %q: use None, Drain, DaemonReload, Restart UNIT, Reload UNIT, Reboot or "+
		"SoftReboot", a.Type)
}

// ValidService names what is wrong with the name of a unit.
func ValidService(name string) error {
	if len(name) > maxServiceName {
		return fmt.Errorf("the unit name is longer than %d bytes", maxServiceName)
	}
	for _, suffix := range unitSuffixes {
		stem, found := strings.CutSuffix(name, suffix)
		if found && stem != "" && strings.Trim(stem,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@") == "" {
			return nil
		}
	}
	return fmt.Errorf("%q is no name of a unit such as crio.service", name)
}

// Validate checks a list as the API does: None, Reboot and SoftReboot stand alone.
func Validate(actions []Action) error {
	if len(actions) > maxActions {
		return fmt.Errorf("more than %d actions", maxActions)
	}
	for _, a := range actions {
		if err := a.validate(); err != nil {
			return err
		}
		if (a.Type == None || a.Reboots()) && len(actions) > 1 {
			return fmt.Errorf("%s stands alone: it leaves nothing for another action to do", a.Type)
		}
	}
	return nil
}

// ParseActions reads the grammar of the annotation dayone.dev/post-config-action: actions separated by commas, such as
// "Drain, DaemonReload, Restart kubelet.service". Special cannot be set.
func ParseActions(s string) ([]Action, error) {
	var out []Action
	for _, word := range strings.Split(s, ",") {
		fields := strings.Fields(word)
		if len(fields) == 0 || len(fields) > 2 {
			return nil, fmt.Errorf("read actions %q: %q is no action: write them like Drain, Restart kubelet.service", s,
				strings.TrimSpace(word))
		}
		a := Action{Type: ActionType(fields[0])}
		if len(fields) == 2 {
			a.Service = fields[1]
		}
		if a.Type == Special {
			return nil, fmt.Errorf(
				"read actions %q: Special is the cluster's own: use Reload crio.service, with Drain where it is needed", s)
		}
		out = append(out, a)
	}
	if err := Validate(out); err != nil {
		return nil, fmt.Errorf("read actions %q: %w", s, err)
	}
	return out, nil
}
