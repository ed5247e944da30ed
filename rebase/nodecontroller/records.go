package nodecontroller

import (
	"context"
	"errors"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
)

// machineConfigNodes keeps one object per node that says what the node is to have. Its status is the agent's and the
// drain controller's.
func (r *Reconciler) machineConfigNodes(ctx context.Context, s *look, plan rollout.Plan) error {
	next := make(map[string]bool, len(plan.Next))
	for _, name := range plan.Next {
		next[name] = true
	}
	var errs []error
	for i := range s.Nodes {
		n := &s.Nodes[i]
		target := n.Record.Desired()
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

func (r *Reconciler) machineConfigNode(ctx context.Context, s *look, n *corev1.Node, target target.Target) error {
	spec := mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: n.Name},
		Pool:          mcfgv1.MCOObjectReference{Name: s.Object.Name},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: target.Config},
		ConfigImage:   mcfgv1.MachineConfigNodeSpecConfigImage{DesiredImage: mcfgv1.ImageDigestFormat(target.Image)}}
	have, version := s.Records[n.Name], ""
	if have != nil {
		version = have.ResourceVersion
	}
	if r.unseen.behind(kindRecord, n.Name, version) {
		s.again(gather)
		return nil
	}
	if have == nil {
		return r.makeRecord(ctx, n, spec)
	}
	wanted := spec
	if r.imageless.Load() && !named(have.Spec) {
		wanted.ConfigImage = have.Spec.ConfigImage
	}
	if have.Spec == wanted {
		return nil
	}
	changed := have.DeepCopy()
	changed.Spec = spec
	patch, err := client.MergeFrom(have).Data(changed)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	// an empty one: the answer tells what there is place for
	written := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if err := r.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	if named(spec) {
		r.imageless.Store(!named(written.Spec))
	}
	r.unseen.note(kindRecord, version, written)
	return nil
}

// named tells whether a record names the image that its node is to have.
func named(spec mcfgv1.MachineConfigNodeSpec) bool { return spec.ConfigImage.DesiredImage != "" }

func (r *Reconciler) makeRecord(ctx context.Context, n *corev1.Node, spec mcfgv1.MachineConfigNodeSpec) error {
	// The owner lets the object go with its node.
	record := &mcfgv1.MachineConfigNode{Spec: spec, ObjectMeta: metav1.ObjectMeta{Name: n.Name,
		Labels:          map[string]string{cluster.LabelManagedBy: cluster.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}}}
	err := r.client.Create(ctx, record)
	if apierrors.IsAlreadyExists(err) {
		return nil // The cache is behind; the watch brings it.
	}
	if err == nil {
		r.unseen.note(kindRecord, "", record)
	}
	return err
}
