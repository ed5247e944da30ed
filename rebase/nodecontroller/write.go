package nodecontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
)

// tell lets the planned nodes know, each by one patch.
func (r *Reconciler) tell(ctx context.Context, s *look, plan rollout.Plan) error {
	var errs []error
	for _, n := range s.Nodes {
		if r.outdated(s, s.Objects[n.Name], n.Record) {
			if _, err := r.tellNode(ctx, s, n.Name); err != nil {
				errs = append(errs, fmt.Errorf("tell node %s its plan: %w", n.Name, err))
			}
		}
	}
	for _, name := range plan.Next {
		told, err := r.tellNode(ctx, s, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("tell node %s: %w", name, err))
		}
		if !told {
			continue
		}
		r.o.Log.WithFields(logrus.Fields{"pool": s.Object.Name, "node": name, "config": plan.Target.Config, "image": plan.Target.Image}).Info("node told")
		r.events.Eventf(s.Object, s.Objects[name], corev1.EventTypeNormal, "NodeTargeted", "Tell", "node %s is told to go to %s", name, plan.Target)
	}
	return errors.Join(errs...)
}

// tellNode changes a node's record and says what the way to the target does to it. The patch holds the resource version that the
// decision was made on: an agent or an admin that has changed the node meanwhile makes it fail, and the pool is looked at again. A node
// whose way is not in the pool's plan yet is not told; the plan's change asks again.
func (r *Reconciler) tellNode(ctx context.Context, s *look, name string) (bool, error) {
	n, target := s.Objects[name], s.Pool.Target
	record, err := nodestate.Parse(n.Annotations)
	if err != nil {
		return false, fmt.Errorf("read record: %w", err)
	}
	promise, ok, err := r.promise(s, record)
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
	for _, key := range []string{manifests.AnnotationPrefetch, manifests.AnnotationPrefetched, manifests.AnnotationPrefetchError} {
		if _, found := n.Annotations[key]; found {
			changes[key] = nil // its turn has come
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion, "annotations": changes}})
	if err != nil {
		return false, fmt.Errorf("encode patch: %w", err)
	}
	if err := r.client.Patch(ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return false, err
	}
	return true, nil
}

// machineConfigNodes keeps one object per node that says what the node is to have.
func (r *Reconciler) machineConfigNodes(ctx context.Context, s *look, plan rollout.Plan) error {
	next := make(map[string]bool, len(plan.Next))
	for _, name := range plan.Next {
		next[name] = true
	}
	var errs []error
	for _, n := range s.Nodes {
		target := rollout.Target{Config: n.Record.DesiredConfig, Image: n.Record.DesiredImage}
		if next[n.Name] {
			target = plan.Target
		}
		if target.Config == "" {
			target.Config = s.Object.Spec.Configuration.Name
		}
		if target.Config == "" {
			continue
		}
		if err := r.machineConfigNode(ctx, s, s.Objects[n.Name], target); err != nil {
			errs = append(errs, fmt.Errorf("keep MachineConfigNode %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) machineConfigNode(ctx context.Context, s *look, n *corev1.Node, target rollout.Target) error {
	spec := mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: n.Name}, Pool: mcfgv1.MCOObjectReference{Name: s.Object.Name},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: target.Config},
		ConfigImage:   mcfgv1.MachineConfigNodeSpecConfigImage{DesiredImage: mcfgv1.ImageDigestFormat(target.Image)}}
	have := s.Records[n.Name]
	if have == nil {
		// The owner lets the object go with its node.
		err := r.client.Create(ctx, &mcfgv1.MachineConfigNode{Spec: spec, ObjectMeta: metav1.ObjectMeta{Name: n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}}})
		if apierrors.IsAlreadyExists(err) {
			return nil // The cache is behind; the watch brings it.
		}
		return err
	}
	if have.Spec == spec {
		return nil
	}
	changed := have.DeepCopy()
	changed.Spec = spec
	return r.client.Patch(ctx, changed, client.MergeFrom(have))
}
