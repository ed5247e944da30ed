package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/manager"
)

// overlay is a cluster as it would be with the objects of some files applied: they replace those of the same kind and name.
type overlay struct {
	lister
	with *dump
}

// over reads files of objects.
func over(base lister, files []string) (*overlay, error) {
	scheme, err := manager.Scheme()
	if err != nil {
		return nil, err
	}
	d := &dump{scheme: scheme, objects: map[schema.GroupKind]map[string]dumped{}}
	for _, file := range files {
		if err := d.readFile(file); err != nil {
			return nil, err
		}
	}
	if len(d.objects) == 0 {
		return nil, errors.New("read files: there is no object in them that decides about nodes: give MachineConfigs, mirror sets, KubeletConfigs, MachineConfigPools or the MachineConfiguration")
	}
	return &overlay{base, d}, nil
}

// List lists the base's objects with those of the files in their place.
func (o *overlay) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := o.lister.List(ctx, list, options...); err != nil && !isNoKind(err) {
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
	keepPool(now, before)
}
