package machineosbuild

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is where a build is. The zero value is no state.
type State string

// The states: Initial has no object of its own in the cluster yet, Prepared has its Job, Building has a pod at work.
// The last three are terminal: nothing leads out of them, and the API refuses any further change of conditions.
const (
	Initial     State = "Initial"
	Prepared    State = "Prepared"
	Building    State = "Building"
	Succeeded   State = "Succeeded"
	Failed      State = "Failed"
	Interrupted State = "Interrupted"
)

// moves is the table of allowed moves. A state that is left out leads nowhere.
func moves() map[State][]State {
	return map[State][]State{
		Initial:  {Prepared, Building, Succeeded, Failed, Interrupted},
		Prepared: {Building, Succeeded, Failed, Interrupted},
		Building: {Succeeded, Failed, Interrupted},
	}
}

// Allowed reports whether a build in state from may go to state to. Staying is no move.
func Allowed(from, to State) bool { return slices.Contains(moves()[from], to) }

// Terminal reports whether nothing leads out of the state.
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Interrupted }

// Active reports whether the build has objects in the cluster that work for it.
func (s State) Active() bool { return s == Prepared || s == Building }

// conditionTypes are the API's (BuildProgress), in the order in which they are written.
func conditionTypes() []State { return []State{Prepared, Building, Failed, Interrupted, Succeeded} }

// StateOf reads the conditions. A build without conditions is Initial, and a terminal condition beats all others.
func StateOf(b *mcfgv1.MachineOSBuild) State {
	if b == nil {
		return Initial
	}
	for _, s := range []State{Succeeded, Failed, Interrupted, Building, Prepared} {
		if c := find(b.Status.Conditions, string(s)); c != nil && c.Status == metav1.ConditionTrue {
			return s
		}
	}
	return Initial
}

// written reports whether the build has its conditions: one that was just created has none.
func written(b *mcfgv1.MachineOSBuild) bool { return len(b.Status.Conditions) > 0 }

func find(conditions []metav1.Condition, kind string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}
