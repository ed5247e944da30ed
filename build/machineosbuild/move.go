package machineosbuild

import (
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Move writes the state with its cause into the build's status: all five conditions, the start when work begins, the
// end when it is over. A build that is Initial and has no conditions yet may be moved to Initial, which writes them.
// Every other move that the table does not have is an error and changes nothing.
func Move(b *mcfgv1.MachineOSBuild, to State, cause Cause, now time.Time) error {
	from := StateOf(b)
	first := from == Initial && to == Initial && !written(b)
	if !first && !Allowed(from, to) {
		why := "invalid state transition"
		if from.Terminal() {
			why = string(from) + " is final, create another MachineOSBuild"
		}
		return fmt.Errorf("move MachineOSBuild %s from %s to %s: %s", b.Name, from, to, why)
	}
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	setConditions(b, to, cause, at)
	setTimes(b, to, at)
	return nil
}

// setConditions writes the five of the API and keeps those of others.
func setConditions(b *mcfgv1.MachineOSBuild, to State, cause Cause, at metav1.Time) {
	for _, kind := range conditionTypes() {
		c := metav1.Condition{
			Type: string(kind), Status: metav1.ConditionFalse, Reason: string(kind), Message: absent(kind),
			LastTransitionTime: at, ObservedGeneration: b.Generation,
		}
		if kind == to {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, cause.reason(to), cause.text(to)
		}
		old := find(b.Status.Conditions, c.Type)
		if old == nil {
			b.Status.Conditions = append(b.Status.Conditions, c)
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
	}
}

// setTimes keeps the API's rules: neither time changes once set, and the end is later than the start by a second at
// least, for the API keeps whole seconds.
func setTimes(b *mcfgv1.MachineOSBuild, to State, at metav1.Time) {
	if to == Initial {
		return
	}
	if b.Status.BuildStart == nil {
		start := at
		if to.Terminal() { // it ended before it began: the second before is as near as the API allows
			start = metav1.NewTime(at.Add(-time.Second))
		}
		b.Status.BuildStart = &start
	}
	if !to.Terminal() || b.Status.BuildEnd != nil {
		return
	}
	end := at
	// quick, or the clock went back
	if earliest := b.Status.BuildStart.Truncate(time.Second).Add(time.Second); end.Time.Before(earliest) {
		end = metav1.NewTime(earliest)
	}
	b.Status.BuildEnd = &end
}

// absent is what a condition that is False says.
func absent(kind State) string {
	switch kind {
	case Prepared:
		return "The build waits for its Job no more, or has not got one yet"
	case Building:
		return "No pod is building"
	case Failed:
		return "The build has not failed"
	case Interrupted:
		return "The build has not been interrupted"
	default:
		return "The image is not ready"
	}
}

// present is what a condition that is True says when its cause has no message.
func present(kind State) string {
	switch kind {
	case Prepared:
		return "The build's Job has been created"
	case Building:
		return "A pod is building the image"
	case Failed:
		return "The build failed"
	case Interrupted:
		return "The build was interrupted"
	default:
		return "The image is ready"
	}
}
