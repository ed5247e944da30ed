package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// writeRecords keeps one MachineConfigNode per node that says what the node must have. Its status is the agent's and
// the drain controller's.
func writeRecords(ctx context.Context, w *writer, d *decision) (retry time.Duration, err error) {
	next := make(map[string]bool, len(d.plan.Next))
	for _, name := range d.plan.Next {
		next[name] = true
	}
	var errs []error
	for i := range d.Nodes {
		n := &d.Nodes[i]
		target := n.Record.Desired()
		if next[n.Name] {
			target = d.plan.Target
		}
		if target.Config == "" {
			target.Config = d.Object.Spec.Configuration.Name
		}
		if target.Config == "" || n.RecordErr != nil { // what cannot be read is not repeated
			continue
		}
		spec := mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: n.Name},
			Pool:          mcfgv1.MCOObjectReference{Name: d.Object.Name},
			ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: target.Config},
			ConfigImage:   mcfgv1.MachineConfigNodeSpecConfigImage{DesiredImage: mcfgv1.ImageDigestFormat(target.Image)}}
		have, version := d.Records[n.Name], ""
		if have != nil {
			version = have.ResourceVersion
		}
		if w.unseen.behind(kindRecord, n.Name, version) {
			retry = gather
			continue
		}
		if have == nil {
			err = w.makeRecord(ctx, d.Objects[n.Name], spec)
		} else {
			err = w.changeRecord(ctx, have, spec)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keep MachineConfigNode %s: %w", n.Name, err))
		}
	}
	return retry, errors.Join(errs...)
}

func (w *writer) changeRecord(ctx context.Context, have *mcfgv1.MachineConfigNode,
	spec mcfgv1.MachineConfigNodeSpec) error {
	wanted := spec
	if w.imageless.Load() && !named(have.Spec) {
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
	// An empty object: the answer shows which fields the cluster has.
	written := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: have.Name}}
	if err := w.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	if named(spec) {
		w.imageless.Store(!named(written.Spec))
	}
	w.unseen.note(kindRecord, have.ResourceVersion, written)
	return nil
}

// named tells whether a record names the image that its node must have.
func named(spec mcfgv1.MachineConfigNodeSpec) bool { return spec.ConfigImage.DesiredImage != "" }

func (w *writer) makeRecord(ctx context.Context, n *corev1.Node, spec mcfgv1.MachineConfigNodeSpec) error {
	// The owner lets the object go with its node.
	record := &mcfgv1.MachineConfigNode{Spec: spec, ObjectMeta: metav1.ObjectMeta{Name: n.Name,
		Labels:          map[string]string{cluster.LabelManagedBy: cluster.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}}}
	err := w.client.Create(ctx, record)
	if apierrors.IsAlreadyExists(err) {
		return nil // The cache is behind; the watch brings it.
	}
	if err == nil {
		w.unseen.note(kindRecord, "", record)
	}
	return err
}
