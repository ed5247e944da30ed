package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// overlay is a cluster as it would be with the objects of some files applied: they replace those of the same kind and
// name.
type overlay struct {
	lister
	with *dump
}

// over reads files of objects.
func over(base lister, files []string) (*overlay, error) {
	d, err := newDump("")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := d.readFile(file); err != nil {
			return nil, err
		}
	}
	if len(d.objects) == 0 {
		return nil, errors.New(
			"read files: there is no object in them that decides about nodes: give MachineConfigs, mirror sets, " +
				"KubeletConfigs, MachineConfigPools or the MachineConfiguration")
	}
	return &overlay{base, d}, nil
}

// List lists the base's objects with those of the files in their place.
func (o *overlay) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := o.lister.List(ctx, list, options...); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	have, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	added, ok := list.DeepCopyObject().(client.ObjectList)
	if !ok {
		return fmt.Errorf("list %T: it is no list", list)
	}
	if err := o.with.List(ctx, added); err != nil {
		return err
	}
	with, err := meta.ExtractList(added)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	place := map[string]int{}
	for i, object := range have {
		place[key(object)] = i
	}
	for _, object := range with {
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
	annotations := from.GetAnnotations()
	for k, v := range to.GetAnnotations() {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[k] = v
	}
	to.SetAnnotations(annotations)
	keepWritten(now, before)
}

// keepWritten lets an object of a file keep what controllers write: a pool its rendered config and its status, a
// MachineOSConfig its image.
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
	}
}

// remade are the pools whose MachineOSConfig of the files asks for an image of other content, or in another place, than
// the cluster's.
func (o *overlay) remade(ctx context.Context) (map[string]bool, error) {
	var have, with mcfgv1.MachineOSConfigList
	if err := o.lister.List(ctx, &have); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("read MachineOSConfigs: %w", err)
	}
	if err := o.with.List(ctx, &with); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range with.Items {
		is := &with.Items[i].Spec
		same := slices.ContainsFunc(have.Items, func(m mcfgv1.MachineOSConfig) bool {
			was := &m.Spec
			return m.Name == with.Items[i].Name && was.RenderedImagePushSpec == is.RenderedImagePushSpec &&
				slices.Equal(was.Containerfile, is.Containerfile)
		})
		out[is.MachineConfigPool.Name] = !same
	}
	return out, nil
}
