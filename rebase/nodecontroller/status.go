package nodecontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// maxNamed is how many nodes a message names; the counts hold the rest.
const maxNamed = 5

// writeStatus writes the pool's status when it says something new. Conditions of other writers stay as they are: the
// patch bears the resource version that they were read with.
func writeStatus(ctx context.Context, w *writer, d *decision) (time.Duration, error) {
	changed := d.Object.DeepCopy()
	changed.Status = status(d, w.now())
	var err error
	if changed.Status.OSImageStream, err = runningStream(ctx, w.client, changed.Status); err != nil {
		return 0, fmt.Errorf("find OS image stream of pool %s: %w", d.Object.Name, err)
	}
	if equality.Semantic.DeepEqual(d.Object.Status, changed.Status) {
		return 0, nil
	}
	err = w.client.Status().Patch(ctx, changed,
		counted{client.MergeFromWithOptions(d.Object, client.MergeFromWithOptimisticLock{})})
	if apierrors.IsConflict(err) {
		return gather, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write status of pool %s: %w", d.Object.Name, err)
	}
	w.unseen.note(kindPool, d.Object.ResourceVersion, changed)
	tellStatus(w.events, d, changed)
	return 0, nil
}

// counted is a patch of a pool's status that has all its counts. A difference has none that is and was 0: then nobody
// would write it, and who asks for it gets nothing, where the Machine Config Operator says 0.
type counted struct{ client.Patch }

// Data is client.Patch's.
func (p counted) Data(o client.Object) ([]byte, error) {
	raw, err := p.Patch.Data(o)
	pool, is := o.(*mcfgv1.MachineConfigPool)
	if err != nil || !is {
		return raw, err
	}
	var patch struct {
		Metadata json.RawMessage            `json:"metadata,omitempty"`
		Status   map[string]json.RawMessage `json:"status"`
	}
	patch.Status = map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, fmt.Errorf("read patch of a pool's status: %w", err)
	}
	st := pool.Status
	for name, count := range map[string]int32{
		"machineCount": st.MachineCount, "updatedMachineCount": st.UpdatedMachineCount,
		"readyMachineCount": st.ReadyMachineCount, "unavailableMachineCount": st.UnavailableMachineCount,
		"degradedMachineCount": st.DegradedMachineCount,
	} {
		patch.Status[name] = json.RawMessage(strconv.Itoa(int(count)))
	}
	return json.Marshal(patch)
}

// status is the pool's status with what this controller says of it.
func status(d *decision, now time.Time) mcfgv1.MachineConfigPoolStatus {
	st := *d.Object.Status.DeepCopy()
	st.ObservedGeneration = d.Object.Generation
	if d.Doubt == "" { // else the numbers are the last that were known
		st.MachineCount = int32(d.plan.Counts.Nodes)
		st.UpdatedMachineCount = int32(d.plan.Counts.Updated)
		st.ReadyMachineCount = int32(d.plan.Counts.Ready)
		if d.Layered && d.Pool.Target.Image == "" { // no node can have the image that nobody has built yet
			st.UpdatedMachineCount, st.ReadyMachineCount = 0, 0
		}
		st.UnavailableMachineCount = unavailable(d.Nodes)
		st.DegradedMachineCount = int32(d.plan.Counts.Degraded)
		st.PoolSynchronizersStatus = synchronized(d, st)
	}
	if d.Done(d.plan) && !equality.Semantic.DeepEqual(st.Configuration, d.Object.Spec.Configuration) {
		st.Configuration = *d.Object.Spec.Configuration.DeepCopy()
	}
	if !d.Layered { // a pool that has opted out has no image to speak of
		st.Conditions = slices.DeleteFunc(st.Conditions,
			func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == manifests.ConditionImageAccepted })
	} else if c, found := imageAccepted(d); found {
		manifests.SetPoolCondition(&st.Conditions, c, now)
	}
	if c, ok := pinsDegraded(d); ok {
		manifests.SetPoolCondition(&st.Conditions, c, now)
	}
	for _, c := range conditions(d, st) {
		manifests.SetPoolCondition(&st.Conditions, c, now)
	}
	return st
}

// unavailable counts nodes as MCO does: those that take no pods or may soon take none. One whose agent gave up on its
// way to another config and that still takes pods is not among them, although it takes a place of maxUnavailable.
func unavailable(nodes []rollout.Node) (count int32) {
	for i := range nodes {
		n := &nodes[i]
		failing := n.Record.CurrentConfig != n.Record.DesiredConfig &&
			(n.Record.State == nodestate.StateDegraded || n.Record.State == nodestate.StateUnreconcilable)
		if n.NotReady != "" || n.Cordoned || n.RecordErr != nil || !n.Record.Converged() && !failing {
			count++
		}
	}
	return count
}

// synchronized counts the nodes that have pinned the images that they were told to, as they say themselves.
func synchronized(d *decision, st mcfgv1.MachineConfigPoolStatus) []mcfgv1.PoolSynchronizerStatus {
	s := mcfgv1.PoolSynchronizerStatus{PoolSynchronizerType: mcfgv1.PinnedImageSets,
		MachineCount: int64(st.MachineCount), ReadyMachineCount: int64(st.ReadyMachineCount),
		UnavailableMachineCount: int64(st.UnavailableMachineCount),
		AvailableMachineCount:   int64(st.MachineCount - st.UnavailableMachineCount)}
	for i := range d.Nodes {
		record := d.Records[d.Nodes[i].Name]
		if record == nil || len(record.Status.Conditions) == 0 {
			continue // its agent has said nothing yet
		}
		if !slices.ContainsFunc(record.Status.PinnedImageSets, behind) {
			s.UpdatedMachineCount++
		}
	}
	return []mcfgv1.PoolSynchronizerStatus{s}
}

// behind tells that a node has not pinned the images of a set as the set is now.
func behind(p mcfgv1.MachineConfigNodeStatusPinnedImageSet) bool {
	return p.DesiredGeneration == 0 || p.CurrentGeneration != p.DesiredGeneration
}
