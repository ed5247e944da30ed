package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

// node is this node's object as it was read.
type node struct {
	object *metav1.PartialObjectMetadata
	record nodestate.Record
	// away says that the API does not answer: the record is what the disk says, and nothing is written.
	away bool
}

// readNode reads this node's object. While the API is away, and the state that the agent is in needs no answer of it,
// the node is what the disk says: the agent finishes what it has begun.
func (a *Agent) readNode(ctx context.Context, j journal) (node, error) {
	object, err := a.edges.record.cluster.Node(ctx)
	a.edges.metrics.api(err)
	if errors.Is(err, kubeapi.ErrNoAnswer) && j.State.row().alone {
		n, diskErr := nodeOfDisk(a.edges.root, j)
		if diskErr != nil {
			return n, errors.Join(err, diskErr)
		}
		return n, nil
	}
	if err != nil {
		return node{}, err
	}
	n := node{object: object}
	if err := a.mendRecord(ctx, n); err != nil {
		return n, err
	}
	if n.record, err = nodestate.Parse(object.Annotations); err != nil {
		return n, fmt.Errorf("read node %s: %w", a.node, err)
	}
	return n, nil
}

// mendRecord removes what somebody else has written into the agent's own annotations and no agent can read: the step
// writes them anew from what the disk says.
func (a *Agent) mendRecord(ctx context.Context, n node) error {
	broken := nodestate.Broken(n.object.Annotations)
	if len(broken) == 0 {
		return nil
	}
	changes := map[string]*string{}
	for _, key := range broken {
		a.edges.log.WithField("annotation", key).WithField("value", n.object.Annotations[key]).
			Warn("the node's annotation cannot be read and is written anew")
		changes[key] = nil
	}
	if err := a.edges.record.annotate(ctx, changes); err != nil {
		return err
	}
	n.object.Annotations = nodestate.Apply(n.object.Annotations, changes)
	return nil
}

func nodeOfDisk(root string, j journal) (node, error) {
	current, err := readCurrent(root)
	if err != nil {
		return node{}, err
	}
	to := j.Target
	if j.State == Idle {
		to = current.Target()
	}
	return node{object: &metav1.PartialObjectMetadata{}, away: true,
		record: nodestate.Record{CurrentConfig: current.Config.Name, CurrentImage: current.Image,
			DesiredConfig: to.Config, DesiredImage: to.Image}}, nil
}

// readCurrent reads what the node has; it is an error that it has nothing.
func readCurrent(root string) (nodedisk.Current, error) {
	c, err := nodedisk.ReadCurrent(root)
	if err == nil && c.Config == nil {
		err = errors.New("the node's current config is gone from its disk")
	}
	return c, err
}

// introduce writes the record of a node that the cluster sees for the first time, or whose record somebody has removed:
// what its first boot, or a later one, left on disk.
func introduce(ctx context.Context, e *edges, n node) error {
	w := e.record
	current, err := nodedisk.ReadCurrent(e.root)
	if err != nil {
		return err
	}
	if current.Config == nil {
		return fmt.Errorf("introduce node %s: its first boot has left no %s/currentconfig: let dayone-firstboot finish",
			w.node, nodedisk.Dir)
	}
	e.events.tell(ctx, n, occasion{reason: eventNodeDone, once: "first boot",
		message: "first boot has left the node with " + current.Target().String()})
	return w.change(ctx, n, func(r *nodestate.Record) {
		r.CurrentConfig, r.CurrentImage = current.Config.Name, current.Image
		r.FirstPivotConfig = cmp.Or(r.FirstPivotConfig, current.Config.Name)
		if r.DesiredConfig == "" {
			r.DesiredConfig, r.DesiredImage = current.Config.Name, current.Image
		}
		r.State = nodestate.StateDone
	})
}

// recordWriter changes the annotations of this node's object.
type recordWriter struct {
	node    string
	cluster ownNode
	metrics *metrics
}

// change changes the node's record by one patch, if it says something new. The patch changes no key but those that
// differ, so that what a controller writes meanwhile stays. n's object has the changes then, so that another change in
// the same step adds to them; it does not have what others wrote.
func (w recordWriter) change(ctx context.Context, n node, how func(*nodestate.Record)) error {
	if n.away {
		return nil
	}
	record, err := nodestate.Parse(n.object.Annotations)
	if err != nil {
		return fmt.Errorf("read record of node %s: %w", w.node, err)
	}
	how(&record)
	w.metrics.recorded(record)
	changes, err := record.Patch(n.object.Annotations)
	if err != nil {
		return fmt.Errorf("change record of node %s: %w", w.node, err)
	}
	if err := w.annotate(ctx, changes); err != nil {
		return err
	}
	n.object.Annotations = nodestate.Apply(n.object.Annotations, changes)
	return nil
}

// say gives annotations of the node these values, and removes those whose value is empty. It writes those only that
// have another one.
func (w recordWriter) say(ctx context.Context, have, words map[string]string) error {
	changes := map[string]*string{}
	for key, word := range words {
		switch was, there := have[key]; {
		case word != "" && was != word:
			changes[key] = &word
		case word == "" && there:
			changes[key] = nil
		}
	}
	return w.annotate(ctx, changes)
}

// annotate sets annotations of the node, or removes those that are nil.
func (w recordWriter) annotate(ctx context.Context, changes map[string]*string) error {
	if len(changes) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := w.cluster.PatchNode(ctx, data); err != nil {
		return fmt.Errorf("write record of node %s: %w", w.node, err)
	}
	return nil
}

// working says what the agent does. A node that has failed stays so until it gets further: the next attempt may fail in
// the same way.
func working(progress string) func(*nodestate.Record) {
	return func(r *nodestate.Record) {
		r.Progress = progress
		if !failed(r.State) {
			r.State, r.Reason = nodestate.StateWorking, ""
		}
	}
}

// goesOn says that a node which had failed is on its way again.
func goesOn(r *nodestate.Record) {
	if failed(r.State) {
		r.State, r.Reason = nodestate.StateWorking, ""
	}
}

func failed(s nodestate.State) bool {
	return s == nodestate.StateDegraded || s == nodestate.StateUnreconcilable
}

// done says that the node has what is on its disk.
func done(current nodedisk.Current) func(*nodestate.Record) {
	return func(r *nodestate.Record) {
		r.CurrentConfig, r.CurrentImage = current.Config.Name, current.Image
		r.State, r.Reason, r.PostConfigAction, r.Progress = nodestate.StateDone, "", "", ""
	}
}
