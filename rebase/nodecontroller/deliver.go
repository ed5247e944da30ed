package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// deliver writes the target and what it does to the node upon each planned node, by one patch a node. A node on its way
// whose plan has changed gets the new plan.
func deliver(ctx context.Context, w *writer, d *decision) (time.Duration, error) {
	var errs []error
	retry := time.Duration(0)
	targetNode := func(name string) bool {
		written, err := w.targetNode(ctx, d, name)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			retry = gather // an agent or an admin has changed the node meanwhile
			return false
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set target of node %s: %w", name, err))
		}
		return written && err == nil
	}
	for i := range d.Nodes {
		if n := &d.Nodes[i]; outdated(d, n) {
			targetNode(n.Name)
		}
	}
	var targeted []string
	for _, name := range d.plan.Next {
		labelled, err := labelForPool(ctx, w, d.Objects[name])
		if err != nil {
			errs = append(errs, err)
		}
		if !labelled && targetNode(name) {
			targeted = append(targeted, name)
			w.log.WithFields(logrus.Fields{"pool": d.Object.Name, "node": name, "config": d.plan.Target.Config,
				"image": d.plan.Target.Image}).Info("target of node set")
		}
	}
	if len(targeted) > 0 {
		tellTargets(w.events, d, targeted)
	}
	return retry, errors.Join(errs...)
}

// targetNode changes a node's record and says what the transition to the target does to it. The patch holds the
// resource version that the decision was made on, so that it fails when somebody has changed the node meanwhile. A node
// whose transition is not in the pool's plan yet stays as it is; the plan's change starts another reconciliation.
func (w *writer) targetNode(ctx context.Context, d *decision, name string) (bool, error) {
	n, target := d.Objects[name], d.Pool.Target
	record, err := nodestate.Parse(n.Annotations)
	if err != nil {
		return false, fmt.Errorf("read record: %w", err)
	}
	promise, ok, err := promise(d, record, w.now())
	if err != nil || !ok {
		return false, err
	}
	record.DesiredConfig, record.DesiredImage = target.Config, target.Image
	changes, err := record.Patch(n.Annotations)
	if err != nil {
		return false, fmt.Errorf("change record: %w", err)
	}
	if promise != "" {
		changes[manifests.AnnotationPlan] = &promise
	} else if _, stale := n.Annotations[manifests.AnnotationPlan]; stale {
		changes[manifests.AnnotationPlan] = nil
	}
	if len(changes) == 0 {
		return false, nil
	}
	for _, key := range []string{manifests.AnnotationPrefetch, manifests.AnnotationPrefetched,
		manifests.AnnotationPrefetchError} {
		if _, found := n.Annotations[key]; found {
			changes[key] = nil // its turn has come
		}
	}
	change := nodeChange{Metadata: nodeMeta{ResourceVersion: n.ResourceVersion, Annotations: changes}}
	if taints, waited := without(n.Spec.Taints); waited {
		change.Spec = map[string]any{"taints": taints}
	}
	written, err := w.changeNode(ctx, name, change)
	if err != nil {
		return false, err
	}
	w.unseen.note(kindNode, n.ResourceVersion, written)
	return true, nil
}

// promise is the annotation that says what the transition to the target does to a node; ok is false while the
// transition is not in the plan.
func promise(d *decision, record nodestate.Record, now time.Time) (text string, ok bool, err error) {
	if d.Effects == nil {
		return "", !d.effectRequired, nil
	}
	has := record.Current()
	if has == d.Effects.Target {
		// The node gave up on the way to another target; it finds out itself how far it came and what reverts that.
		return "", true, nil
	}
	transition, found := d.Effects.Transition(has)
	if !found {
		return "", false, nil
	}
	p := d.Effects.Promise(transition)
	p.Sent = now.UTC().Format(time.RFC3339)
	text, err = p.Encode()
	return text, err == nil, err
}

// outdated tells whether a node on its way has another plan than the one in force now, for example because a policy has
// changed meanwhile. It gets the new one unless the pool is held.
func outdated(d *decision, n *rollout.Node) bool {
	record := &n.Record
	if d.Effects == nil || d.Pool.Hold != "" || record.Converged() || record.Desired() != d.Pool.Target {
		return false
	}
	transition, found := d.Effects.Transition(record.Current())
	if !found {
		return false
	}
	h := d.History(n.Name)
	return h.PromisedErr != nil || h.Promised != nil && h.Promised.Hash != transition.Hash
}
