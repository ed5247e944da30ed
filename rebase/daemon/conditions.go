package daemon

import (
	"context"
	"errors"
	"reflect"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/disruption"
)

// phase orders the states on the way to a target. Acting and Rebooting are two ways of one step.
func (s State) phase() int {
	return map[State]int{Idle: 0, Planning: 1, Draining: 2, Applying: 3, Acting: 4, Rebooting: 4, Verifying: 5,
		Uncordoning: 6}[s]
}

// Reasons of conditions, beside the states' names.
const (
	reasonAsExpected = "AsExpected"
	reasonNotYet     = "NotYet"
	reasonNotNeeded  = "NotNeeded"
	reasonDone       = "Done"
	reasonFailed     = "Failed"
)

// stage is one condition of a MachineConfigNode on the way: Unknown from the phase that begins it, True from the one
// that finds it done.
type stage struct {
	kind       mcfgv1.StateProgress
	begin, end int
	// of tells whether a plan has it; nil: every plan.
	of func(*journal) bool
}

// stages are those that the agent writes. The drain controller writes Cordoned, Drained and Uncordoned: each type has
// one writer.
func stages() []stage {
	image := func(j *journal) bool { return j.Boots != "" }
	reboot := func(j *journal) bool { return j.Plan.Level == disruption.LevelReboot }
	applying, after, verifying := Applying.phase(), Acting.phase(), Verifying.phase()
	return []stage{
		{mcfgv1.MachineConfigNodeUpdatePrepared, Planning.phase(), Draining.phase(), nil},
		{mcfgv1.MachineConfigNodeUpdateExecuted, Draining.phase(), after, nil},
		{mcfgv1.MachineConfigNodeImagePulledFromRegistry, applying, after, image},
		{mcfgv1.MachineConfigNodeUpdateOS, applying, after, image},
		{mcfgv1.MachineConfigNodeUpdateFiles, applying, after, nil},
		{mcfgv1.MachineConfigNodeUpdateFilesAndOS, applying, after, nil},
		{mcfgv1.MachineConfigNodeUpdateRebooted, after, verifying, reboot},
		{mcfgv1.MachineConfigNodeUpdatePostActionComplete, after, verifying, nil},
		{mcfgv1.MachineConfigNodeUpdateComplete, verifying, Uncordoning.phase(), nil},
		{mcfgv1.MachineConfigNodeResumed, Uncordoning.phase(), Uncordoning.phase() + 1, nil},
	}
}

// status is what the agent says of its node in a state; failure is of the last step there. Times are not in it.
func (j *journal) status(s State, n node, failure error) mcfgv1.MachineConfigNodeStatus {
	var out mcfgv1.MachineConfigNodeStatus
	say := func(kind mcfgv1.StateProgress, is metav1.ConditionStatus, reason, message string) {
		const limit = 32 << 10 // metav1.Condition's
		out.Conditions = append(out.Conditions, metav1.Condition{Type: string(kind), Status: is, Reason: reason,
			Message: message[:min(len(message), limit)]})
	}
	if s == Idle {
		say(mcfgv1.MachineConfigNodeUpdated, metav1.ConditionTrue, reasonAsExpected, "the node has "+n.target().String())
	} else {
		say(mcfgv1.MachineConfigNodeUpdated, metav1.ConditionFalse, string(s), "on the way to "+n.target().String())
	}
	for _, g := range stages() {
		switch at := s.phase(); {
		case s == Idle:
			say(g.kind, metav1.ConditionFalse, reasonAsExpected, "no update is under way")
		case s != Planning && g.of != nil && !g.of(j):
			say(g.kind, metav1.ConditionFalse, reasonNotNeeded, "this change needs none")
		case at >= g.end:
			say(g.kind, metav1.ConditionTrue, reasonDone, j.remark(g.kind))
		case at >= g.begin:
			say(g.kind, metav1.ConditionUnknown, string(s), "under way")
		default:
			say(g.kind, metav1.ConditionFalse, reasonNotYet, "")
		}
	}
	if failure != nil {
		say(mcfgv1.MachineConfigNodeNodeDegraded, metav1.ConditionTrue, reasonFailed, failure.Error())
	} else {
		say(mcfgv1.MachineConfigNodeNodeDegraded, metav1.ConditionFalse, reasonAsExpected, "")
	}
	out.ConfigVersion = &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: n.record.CurrentConfig,
		Desired: n.record.DesiredConfig}
	out.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{CurrentImage: mcfgv1.ImageDigestFormat(
		n.record.CurrentImage),
		DesiredImage: mcfgv1.ImageDigestFormat(n.record.DesiredImage)}
	return out
}

// remark says what a step was, where there is something to say.
func (j *journal) remark(kind mcfgv1.StateProgress) string {
	switch kind {
	case mcfgv1.MachineConfigNodeUpdatePrepared, mcfgv1.MachineConfigNodeUpdatePostActionComplete:
		words := make([]string, 0, len(j.Plan.Steps))
		for _, s := range j.Plan.Steps {
			words = append(words, s.String())
		}
		if len(words) == 0 {
			return "no action is needed"
		}
		return "actions: " + strings.Join(words, ", ")
	case mcfgv1.MachineConfigNodeImagePulledFromRegistry, mcfgv1.MachineConfigNodeUpdateOS:
		return j.Boots
	}
	return ""
}

// show writes the status to the node's MachineConfigNode when it says something new. It is for others: what fails is
// logged, and said with the next step.
func (a *Agent) show(ctx context.Context, n node, s State, failure error) {
	if n.away {
		return
	}
	status := a.journal.status(s, n, failure)
	if a.shown != nil && reflect.DeepEqual(*a.shown, status) {
		return
	}
	err := a.apply(ctx, status)
	if err == nil {
		a.shown = &status
	} else if ctx.Err() == nil && !errors.Is(err, errNoRecord) {
		a.o.Log.WithError(err).Warn("cannot write the MachineConfigNode")
	}
}

// errNoRecord says that the node controller has not made the object yet.
var errNoRecord = errors.New("the node has no MachineConfigNode yet")

func (a *Agent) apply(ctx context.Context, status mcfgv1.MachineConfigNodeStatus) error {
	have, err := a.o.Cluster.MachineConfigNode(ctx)
	if err != nil {
		return err
	}
	if have == nil {
		return errNoRecord
	}
	next := &mcfgv1.MachineConfigNode{Status: *status.DeepCopy()}
	next.Status.ObservedGeneration = have.Generation
	now := metav1.NewTime(a.o.Now())
	for i := range next.Status.Conditions {
		c := &next.Status.Conditions[i]
		c.LastTransitionTime, c.ObservedGeneration = now, have.Generation
		if old := meta.FindStatusCondition(have.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	err = a.o.Cluster.ApplyMachineConfigNode(ctx, next)
	if refused := apierrors.APIStatus(nil); err != nil && errors.As(err, &refused) && !away(err) ||
		apierrors.IsInternalError(err) {
		// Clusters whose feature set has no image mode do not know this field.
		next.Status.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{}
		err = a.o.Cluster.ApplyMachineConfigNode(ctx, next)
	}
	return err
}
