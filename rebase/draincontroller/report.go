package draincontroller

import (
	"context"
	"fmt"
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
)

// maxNamed is how many pods a message names.
const maxNamed = 10

// reasonFailed is the reason of a drain that takes longer than its limit.
const reasonFailed = "DrainFailed"

// waiting reports what the drain waits for and says when to look again.
func (r *Reconciler) waiting(ctx context.Context, n *corev1.Node, remaining []drain.Pod, failure error) (time.Duration, error) {
	message := names(remaining)
	if failure != nil {
		message = strings.TrimPrefix(message+"; "+failure.Error(), "; ")
	}
	took := r.o.Now().Sub(r.started(n)).Round(time.Second)
	if took < r.o.Limit {
		if last, said := r.said.Load(n.Name); said {
			if past := r.o.Now().Sub(last.(time.Time)); past >= 0 && past < sayInterval {
				return pollInterval, nil
			}
		}
		r.said.Store(n.Name, r.o.Now())
		return pollInterval, r.report(ctx, n.Name, condition(mcfgv1.MachineConfigNodeUpdateDrained, false, "Draining", message))
	}
	message = fmt.Sprintf("the drain has taken longer than %s and is tried on: %s", r.o.Limit, message)
	failed, err := r.failedBefore(ctx, n.Name)
	if err != nil {
		return 0, err
	}
	if !failed {
		r.o.Log.WithField("node", n.Name).WithField("after", took).Warn("drain failed")
		r.events.Eventf(n, nil, corev1.EventTypeWarning, reasonFailed, "Drain", "%s", message)
	}
	return slowInterval, r.report(ctx, n.Name, condition(mcfgv1.MachineConfigNodeUpdateDrained, false, reasonFailed, message))
}

// started is when the drain began; the annotation outlives the controller.
func (r *Reconciler) started(n *corev1.Node) time.Time {
	t, err := time.Parse(time.RFC3339, n.Annotations[manifests.AnnotationDrainStarted])
	if err != nil {
		return r.o.Now()
	}
	return t
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

// failedBefore tells whether the drain's failure has been said already.
func (r *Reconciler) failedBefore(ctx context.Context, node string) (bool, error) {
	var mcn mcfgv1.MachineConfigNode
	if err := r.client.Get(ctx, client.ObjectKey{Name: node}, &mcn); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	c := meta.FindStatusCondition(mcn.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdateDrained))
	return c != nil && c.Reason == reasonFailed, nil
}

// report writes conditions of the node's MachineConfigNode when they say something new. A node without one has nobody to tell. The node
// controller writes into the same list: what it has changed meanwhile is read again, so that no report is lost after the request was answered.
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

func (r *Reconciler) reportOnce(ctx context.Context, from client.Reader, node string, conditions []metav1.Condition) error {
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
