package daemon

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/disruption"
)

// Reasons of conditions, beside the states' names.
const (
	reasonAsExpected = "AsExpected"
	reasonNotYet     = "NotYet"
	reasonNotNeeded  = "NotNeeded"
	reasonDone       = "Done"
	reasonFailed     = "Failed"
)

// conditionRow is one condition of a MachineConfigNode on the way: Unknown from the phase that begins it, True from the
// one that finds it done.
type conditionRow struct {
	kind       mcfgv1.StateProgress
	begin, end int
	// of tells whether a plan has it; nil: every plan.
	of func(journal) bool
}

// conditionRows are those that the agent writes. The drain controller writes Cordoned, Drained and Uncordoned: each
// type has one writer.
func conditionRows() []conditionRow {
	image := func(j journal) bool { return j.Boots != "" }
	reboot := func(j journal) bool { return j.Plan.Level == disruption.LevelReboot }
	at := func(s State) int { return s.row().phase }
	return []conditionRow{
		{mcfgv1.MachineConfigNodeUpdatePrepared, at(Planning), at(Draining), nil},
		{mcfgv1.MachineConfigNodeUpdateExecuted, at(Draining), at(Acting), nil},
		{mcfgv1.MachineConfigNodeImagePulledFromRegistry, at(Applying), at(Acting), image},
		{mcfgv1.MachineConfigNodeUpdateOS, at(Applying), at(Acting), image},
		{mcfgv1.MachineConfigNodeUpdateFiles, at(Applying), at(Acting), nil},
		{mcfgv1.MachineConfigNodeUpdateFilesAndOS, at(Applying), at(Acting), nil},
		{mcfgv1.MachineConfigNodeUpdateRebooted, at(Acting), at(Verifying), reboot},
		{mcfgv1.MachineConfigNodeUpdatePostActionComplete, at(Acting), at(Verifying), nil},
		{mcfgv1.MachineConfigNodeUpdateComplete, at(Verifying), at(Uncordoning), nil},
		{mcfgv1.MachineConfigNodeResumed, at(Uncordoning), at(Uncordoning) + 1, nil},
	}
}

// statusOf is what the agent says of its node in the journal's state; failure is of the last step there. Times are not
// in it.
func statusOf(j journal, n node, failure error) mcfgv1.MachineConfigNodeStatus {
	s, to := j.State, n.record.Desired()
	var out mcfgv1.MachineConfigNodeStatus
	say := func(kind mcfgv1.StateProgress, is metav1.ConditionStatus, reason, message string) {
		const limit = 32 << 10 // metav1.Condition's
		out.Conditions = append(out.Conditions, metav1.Condition{Type: string(kind), Status: is, Reason: reason,
			Message: message[:min(len(message), limit)]})
	}
	if s == Idle {
		say(mcfgv1.MachineConfigNodeUpdated, metav1.ConditionTrue, reasonAsExpected, "the node has "+to.String())
	} else {
		say(mcfgv1.MachineConfigNodeUpdated, metav1.ConditionFalse, string(s), "on the way to "+to.String())
	}
	for _, g := range conditionRows() {
		switch at := s.row().phase; {
		case s == Idle:
			say(g.kind, metav1.ConditionFalse, reasonAsExpected, "no update is under way")
		case s != Planning && g.of != nil && !g.of(j):
			say(g.kind, metav1.ConditionFalse, reasonNotNeeded, "this change needs none")
		case at >= g.end:
			say(g.kind, metav1.ConditionTrue, reasonDone, remark(j, g.kind))
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
	out.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{
		CurrentImage: mcfgv1.ImageDigestFormat(n.record.CurrentImage),
		DesiredImage: mcfgv1.ImageDigestFormat(n.record.DesiredImage)}
	return out
}

// remark says what a step was, where there is something to say.
func remark(j journal, kind mcfgv1.StateProgress) string {
	switch kind {
	case mcfgv1.MachineConfigNodeUpdatePrepared, mcfgv1.MachineConfigNodeUpdatePostActionComplete:
		words := make([]string, 0, len(j.Plan.Steps))
		for _, s := range j.Plan.Steps {
			words = append(words, s.String())
		}
		text := "no action is needed"
		if len(words) > 0 {
			text = "actions: " + strings.Join(words, ", ")
		}
		if j.Forced {
			text += "; " + ForcePath + " asks for them"
		}
		return text
	case mcfgv1.MachineConfigNodeImagePulledFromRegistry, mcfgv1.MachineConfigNodeUpdateOS:
		return j.Boots
	}
	return ""
}

// statusWriter writes the status to the node's MachineConfigNode when it says something new.
type statusWriter struct {
	cluster ownRecord
	now     func() time.Time
	log     *logrus.Entry
	// shown is the status as this process wrote it last.
	shown *mcfgv1.MachineConfigNodeStatus
}

// show writes a status. It is for others: what fails is logged, and written with the next step.
func (w *statusWriter) show(ctx context.Context, n node, status mcfgv1.MachineConfigNodeStatus) {
	if n.away || w.shown != nil && reflect.DeepEqual(*w.shown, status) {
		return
	}
	err := w.apply(ctx, status)
	if err == nil {
		w.shown = &status
	} else if ctx.Err() == nil && !errors.Is(err, errNoRecord) {
		w.log.WithError(err).Warn("cannot write the MachineConfigNode")
	}
}

// errNoRecord says that the node controller has not made the object yet.
var errNoRecord = errors.New("the node has no MachineConfigNode yet")

func (w *statusWriter) apply(ctx context.Context, status mcfgv1.MachineConfigNodeStatus) error {
	have, err := w.cluster.MachineConfigNode(ctx)
	if err != nil {
		return err
	}
	if have == nil {
		return errNoRecord
	}
	next := &mcfgv1.MachineConfigNode{Status: *status.DeepCopy()}
	next.Status.ObservedGeneration = have.Generation
	now := metav1.NewTime(w.now())
	for i := range next.Status.Conditions {
		c := &next.Status.Conditions[i]
		c.LastTransitionTime, c.ObservedGeneration = now, have.Generation
		if old := meta.FindStatusCondition(have.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	if renewed(have.Status.PinnedImageSets, next.Status.PinnedImageSets) {
		// The API lets no generation fall: the entry of a set that was made anew has to go first.
		without := next.DeepCopy()
		without.Status.PinnedImageSets = nil
		if err := w.cluster.ApplyMachineConfigNode(ctx, without); err != nil {
			return err
		}
	}
	err = w.cluster.ApplyMachineConfigNode(ctx, next)
	if refuses(err) {
		// Clusters whose feature set has no image mode do not know this field,
		next.Status.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{}
		err = w.cluster.ApplyMachineConfigNode(ctx, next)
	}
	if refuses(err) && len(next.Status.IrreconcilableChanges) > 0 {
		// and others not this one.
		next.Status.IrreconcilableChanges = nil
		err = w.cluster.ApplyMachineConfigNode(ctx, next)
	}
	return err
}

// refuses tells that the API has answered, and not with yes.
func refuses(err error) bool {
	refused := apierrors.APIStatus(nil)
	return errors.As(err, &refused) && !errors.Is(err, kubeapi.ErrNoAnswer) || apierrors.IsInternalError(err)
}

// renewed tells whether a set of this name has a lower generation than the one before.
func renewed(before, after []mcfgv1.MachineConfigNodeStatusPinnedImageSet) bool {
	for _, was := range before {
		for _, is := range after {
			if is.Name == was.Name && (is.DesiredGeneration < was.DesiredGeneration ||
				is.CurrentGeneration < was.CurrentGeneration || is.LastFailedGeneration < was.LastFailedGeneration) {
				return true
			}
		}
	}
	return false
}
