package draincontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/drain"
	"dayone.dev/dayone/rebase/nodestate"
)

// maxNamed is how many pods a message names.
const maxNamed = 10

const (
	// reasonFailed is the reason of a drain that takes longer than its limit.
	reasonFailed = "DrainFailed"
	// reasonSlow is the reason of the event that a drain takes longer than slowAfter.
	reasonSlow = "DrainThresholdExceeded"
)

// waiting reports what the drain waits for and says when to check again.
func (r *Reconciler) waiting(ctx context.Context, n *corev1.Node, remaining []drain.Pod, failure error) (time.Duration,
	error) {
	message := names(remaining)
	if failure != nil {
		message = strings.TrimPrefix(message+"; "+failure.Error(), "; ")
	}
	took := r.took(n).Round(time.Second)
	r.tellSlow(n, took, message)
	pause := max(firstPoll, min(took, pollInterval))
	if took < Limit && r.reportedLately(n.Name) {
		return pause, nil
	}
	if failure != nil {
		r.o.Log.WithField("node", n.Name).WithError(failure).Warn("pods not asked to leave")
	}
	if took < Limit {
		r.reported.Store(n.Name, r.o.Now())
		return pause, r.report(ctx, n.Name, condition(mcfgv1.MachineConfigNodeUpdateDrained, false, "Draining",
			message))
	}
	message = fmt.Sprintf("the drain has taken longer than %s and continues: %s", Limit, message)
	r.metrics.failed.WithLabelValues(n.Name).Set(1)
	failed, err := r.failedBefore(ctx, n.Name)
	if err != nil {
		return 0, err
	}
	if !failed {
		r.o.Log.WithField("node", n.Name).WithField("after", took).Warn("drain failed")
		r.events.Eventf(n, nil, corev1.EventTypeWarning, reasonFailed, "Drain", "%s", message)
	}
	return slowInterval, r.report(ctx, n.Name, condition(mcfgv1.MachineConfigNodeUpdateDrained, false, reasonFailed,
		message))
}

// tellSlow tells once of each drain that it takes long, long before it counts as failed.
func (r *Reconciler) tellSlow(n *corev1.Node, took time.Duration, message string) {
	began := n.Annotations[manifests.AnnotationDrainStarted]
	if took < slowAfter || took >= Limit {
		return
	}
	if told, found := r.slow.Swap(n.Name, began); found && told == began {
		return
	}
	r.events.Eventf(n, nil, corev1.EventTypeWarning, reasonSlow, "Drain",
		"the drain takes longer than %s and continues: %s", slowAfter, message)
}

// reportedLately tells whether what a node's drain waits for was just reported.
func (r *Reconciler) reportedLately(node string) bool {
	last, said := r.reported.Load(node)
	if !said {
		return false
	}
	past := r.o.Now().Sub(last.(time.Time))
	return past >= 0 && past < reportInterval
}

// progress is how long a drain had taken when this process saw it first.
type progress struct {
	began  string // the annotation's, which is another one for the next drain
	seen   time.Time
	before time.Duration
}

// took is how long the drain takes. The annotation outlives the controller; but what has passed since this process saw
// it is measured, not read off the wall: a clock that is set in the middle makes no drain fail, nor last for ever.
func (r *Reconciler) took(n *corev1.Node) time.Duration {
	began, now := n.Annotations[manifests.AnnotationDrainStarted], r.o.Now()
	if have, found := r.drains.Load(n.Name); found && have.(progress).began == began {
		return have.(progress).before + now.Sub(have.(progress).seen)
	}
	p := progress{began: began, seen: now}
	if t, err := time.Parse(time.RFC3339, began); err == nil {
		p.before = max(0, now.Sub(t))
	}
	r.drains.Store(n.Name, p)
	return p.before
}

// forget drops what is remembered of a node's drain, which is over.
func (r *Reconciler) forget(node string) {
	r.reported.Delete(node)
	r.drains.Delete(node)
	r.answers.Delete(node)
	r.slow.Delete(node)
	r.metrics.failed.DeleteLabelValues(node)
}

// answered reports what was answered to a node's request.
func (r *Reconciler) answered(ctx context.Context, n *corev1.Node, record nodestate.Record,
	conditions ...metav1.Condition) error {
	if err := r.report(ctx, n.Name, conditions...); err != nil {
		return err
	}
	r.answers.Store(n.Name, record.DesiredDrain)
	return nil
}

// settle makes sure that the answer to a node's request is in the conditions, too: its writer may have been
// killed before. This process checks once for each answer.
func (r *Reconciler) settle(ctx context.Context, n *corev1.Node, record nodestate.Record) error {
	if answer, found := r.answers.Load(n.Name); found && answer == record.DesiredDrain {
		return nil
	}
	conditions := uncordoned(n.Spec.Unschedulable)
	if strings.HasPrefix(record.DesiredDrain, nodestate.Drain+"-") {
		if !n.Spec.Unschedulable {
			return nil // somebody else has uncordoned it, and the agent needs no drain any more
		}
		conditions = append(drained(allLeft), cordoned())
	}
	var mcn mcfgv1.MachineConfigNode
	if err := r.client.Get(ctx, client.ObjectKey{Name: n.Name}, &mcn); err != nil {
		return client.IgnoreNotFound(err)
	}
	said := func(c metav1.Condition) bool {
		return meta.IsStatusConditionPresentAndEqual(mcn.Status.Conditions, c.Type, c.Status)
	}
	if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return !said(c) }) {
		conditions = nil // the message may differ: its writer knew more
	}
	return r.answered(ctx, n, record, conditions...)
}

// allLeft is reported of a drained node.
const allLeft = "all pods that had to leave have left"

// cordoned, drained and uncordoned are the conditions of a node that is.
func cordoned() metav1.Condition {
	return condition(mcfgv1.MachineConfigNodeUpdateCordoned, true, "Cordoned", "no new pods come")
}

func drained(message string) []metav1.Condition {
	return []metav1.Condition{condition(mcfgv1.MachineConfigNodeUpdateDrained, true, "Drained", message),
		condition(mcfgv1.MachineConfigNodeUpdateUncordoned, false, "Drained", "")}
}

func uncordoned(still bool) []metav1.Condition {
	message := "pods come again"
	if still {
		message = "left as it was: somebody else had cordoned the node"
	}
	return []metav1.Condition{condition(mcfgv1.MachineConfigNodeUpdateUncordoned, true, "Uncordoned", message),
		condition(mcfgv1.MachineConfigNodeUpdateDrained, false, "Uncordoned", ""),
		condition(mcfgv1.MachineConfigNodeUpdateCordoned, false, "Uncordoned", "")}
}

func names(pods []drain.Pod) string {
	if len(pods) == 0 {
		return ""
	}
	words := make([]string, 0, maxNamed+1)
	for i, p := range pods {
		if i == maxNamed {
			words = append(words, fmt.Sprintf("and %d more", len(pods)-maxNamed))
			break
		}
		words = append(words, p.String())
	}
	return fmt.Sprintf("%d pods remain: %s", len(pods), strings.Join(words, "; "))
}

// condition makes one of a MachineConfigNode; a reason is demanded, a message is cut at the API's limit.
func condition(t mcfgv1.StateProgress, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	const limit = 32 << 10 // metav1.Condition's
	if len(message) > limit {
		message = message[:limit]
	}
	return metav1.Condition{Type: string(t), Status: status, Reason: reason, Message: message}
}

// failedBefore tells whether the drain's failure has been reported already.
func (r *Reconciler) failedBefore(ctx context.Context, node string) (bool, error) {
	var mcn mcfgv1.MachineConfigNode
	if err := r.client.Get(ctx, client.ObjectKey{Name: node}, &mcn); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	c := meta.FindStatusCondition(mcn.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdateDrained))
	return c != nil && c.Reason == reasonFailed, nil
}

// report writes conditions of the node's MachineConfigNode when they say something new. A node without one gets no
// report. The node controller writes into the same list: what it has changed meanwhile is read again, so that no report
// is lost after the request was answered.
func (r *Reconciler) report(ctx context.Context, node string, conditions ...metav1.Condition) error {
	from := client.Reader(r.client)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := r.reportOnce(ctx, from, node, conditions)
		from = r.live
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("report on MachineConfigNode %s: %w", node, err)
	}
	return nil
}

func (r *Reconciler) reportOnce(ctx context.Context, from client.Reader, node string,
	conditions []metav1.Condition) error {
	var mcn mcfgv1.MachineConfigNode
	if err := from.Get(ctx, client.ObjectKey{Name: node}, &mcn); err != nil {
		return err
	}
	changed := mcn.DeepCopy()
	news := false
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(r.o.Now())
		news = meta.SetStatusCondition(&changed.Status.Conditions, c) || news
	}
	if !news {
		return nil
	}
	return r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(&mcn, client.MergeFromWithOptimisticLock{}))
}
