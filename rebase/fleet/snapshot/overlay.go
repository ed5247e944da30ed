package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// overlay is a cluster as it would be with other objects applied: they replace those of the same kind and name.
type overlay struct {
	Lister
	with *Dump
}

// List lists the cluster's objects with the others in their place.
func (o *overlay) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := o.Lister.List(ctx, list, options...); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	gone, added, err := o.with.of(list)
	if err != nil || len(gone)+len(added) == 0 {
		return err
	}
	have, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	have = slices.DeleteFunc(have, func(object runtime.Object) bool { return gone[key(object)] })
	place := map[string]int{}
	for i, object := range have {
		place[key(object)] = i
	}
	for _, object := range added {
		if i, found := place[key(object)]; found {
			keepStatus(object, have[i])
			have[i] = object
			continue
		}
		have = append(have, object)
	}
	return meta.SetList(list, have)
}

func key(o runtime.Object) string {
	a, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return a.GetNamespace() + "/" + a.GetName()
}

// keepStatus gives an object of a file what applying it would leave alone, as far as plans look at it.
func keepStatus(now, before runtime.Object) {
	to, errTo := meta.Accessor(now)
	from, errFrom := meta.Accessor(before)
	if errTo != nil || errFrom != nil {
		return
	}
	to.SetUID(from.GetUID())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	annotations := map[string]string{}
	maps.Copy(annotations, from.GetAnnotations())
	maps.Copy(annotations, to.GetAnnotations())
	to.SetAnnotations(annotations)
	keepWritten(now, before)
}

// keepWritten lets an object of a file keep what others write: a pool its rendered config and its status, a
// MachineOSConfig its image, a stream its images, a node its health.
func keepWritten(now, before runtime.Object) {
	switch to := now.(type) {
	case *mcfgv1.MachineConfigPool:
		if from, same := before.(*mcfgv1.MachineConfigPool); same {
			to.Spec.Configuration, to.Status = from.Spec.Configuration, from.Status
		}
	case *mcfgv1.MachineOSConfig:
		if from, same := before.(*mcfgv1.MachineOSConfig); same {
			to.Status = from.Status
		}
	case *mcfgv1.OSImageStream:
		if from, same := before.(*mcfgv1.OSImageStream); same {
			to.Status = from.Status
		}
	case *corev1.Node:
		if from, same := before.(*corev1.Node); same {
			to.Status = from.Status
		}
	}
}
