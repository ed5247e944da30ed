package buildcontroller

import (
	"context"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
)

// wishKeys are the annotations and labels that ask for a rebuild, whatever their value: the API's on the
// MachineOSConfig and the original story's on the pool.
func wishKeys() []string {
	return []string{manifests.AnnotationRebuild, manifests.AnnotationRebuildImage}
}

// asks tells whether an object asks for a rebuild.
func asks(o client.Object) bool {
	for _, key := range wishKeys() {
		_, annotated := o.GetAnnotations()[key]
		_, labelled := o.GetLabels()[key]
		if annotated || labelled {
			return true
		}
	}
	return false
}

// holders are the objects on which a rebuild can be asked for.
func (x *run) holders() []client.Object {
	var list []client.Object
	if x.config != nil {
		list = append(list, x.config)
	}
	if x.pool != nil {
		list = append(list, x.pool)
	}
	return list
}

// asked tells whether a rebuild is asked for and which build serves that wish. A mark without a wish means nothing: the
// admin has changed his mind, and the build goes on as any other.
func (x *run) asked() (bool, string) {
	asked, accepted := false, ""
	for _, o := range x.holders() {
		if !asks(o) {
			continue
		}
		asked = true
		if mark := o.GetAnnotations()[manifests.AnnotationRebuilding]; mark != "" {
			accepted = mark
		}
	}
	return asked, accepted
}

// announce writes down which build is current before it is begun, and on the wish for a rebuild that this build serves
// it: whoever comes after a kill begins the same build and no other.
func (x *run) announce(ctx context.Context, name string) error {
	mark := x.d.Action == decide.Rebuild
	return x.annotate(ctx, func(o client.Object, set map[string]string) {
		if o == client.Object(x.config) {
			set[manifests.AnnotationCurrentBuild] = name
		}
		if mark && asks(o) {
			set[manifests.AnnotationRebuilding] = name
		}
	})
}

// annotate changes annotations of the MachineOSConfig and its pool, each in one write that fails when somebody else
// wrote first.
func (x *run) annotate(ctx context.Context, change func(o client.Object, set map[string]string)) error {
	for _, o := range x.holders() {
		set := maps.Clone(o.GetAnnotations())
		if set == nil {
			set = map[string]string{}
		}
		change(o, set)
		if err := x.patchMeta(ctx, o, set, o.GetLabels()); err != nil {
			return err
		}
	}
	return nil
}

func (x *run) patchMeta(ctx context.Context, o client.Object, annotations, labels map[string]string) error {
	if maps.Equal(annotations, o.GetAnnotations()) && maps.Equal(labels, o.GetLabels()) {
		return nil
	}
	old, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %s: it is no object of the API", o.GetName())
	}
	o.SetAnnotations(annotations)
	o.SetLabels(labels)
	if err := x.client.Patch(ctx, o, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("annotate %s: %w", o.GetName(), err)
	}
	return nil
}

// settle takes wishes away whose build has ended, whatever its outcome, and marks wishes that came while one is being
// served.
func (x *run) settle(ctx context.Context) error {
	asked, accepted := x.asked()
	in := x.in
	in.RebuildAsked, in.Accepted = asked, accepted
	in.Own = nil
	for _, b := range x.own {
		in.Own = append(in.Own, known(b, x.gone[b.Name]))
	}
	settled := asked && decide.Settled(in)
	serving := x.build(accepted)
	for _, o := range x.holders() {
		mark := o.GetAnnotations()[manifests.AnnotationRebuilding]
		set, labels := maps.Clone(o.GetAnnotations()), maps.Clone(o.GetLabels())
		if set == nil {
			set = map[string]string{} // a label alone can ask
		}
		switch {
		case mark != "" && (settled || !asks(o)):
			delete(set, manifests.AnnotationRebuilding)
			for _, key := range wishKeys() {
				delete(set, key)
				delete(labels, key)
			}
		case mark == "" && asks(o) && !settled && serving != nil && !machineosbuild.StateOf(serving).Terminal():
			set[manifests.AnnotationRebuilding] = accepted
		}
		if err := x.patchMeta(ctx, o, set, labels); err != nil {
			return err
		}
	}
	if settled {
		x.log.WithField("machineosbuild", accepted).Info("rebuild has ended")
		x.again(soon)
	}
	return nil
}
