package failurecontroller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/manifests"
)

// records are the ConfigMaps of builds. They are read from the API server when something happens and are in no cache:
// their logs would fill it.
type records struct {
	live      client.Reader
	to        client.Writer
	namespace string
}

// list gives the records of a MachineOSConfig, or of all, without their content.
func (s records) list(ctx context.Context, config string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := s.live.List(ctx, list, client.InNamespace(s.namespace),
		client.MatchingLabels(mcobuild.Records(config))); err != nil {
		return nil, fmt.Errorf("list records of builds: %w", err)
	}
	return list.Items, nil
}

// read gives the record of a build; the zero Record when there is none, or none that can be read.
func (s records) read(ctx context.Context, build string) (mcobuild.Record, error) {
	m, err := s.get(ctx, build)
	if err != nil || m == nil {
		return mcobuild.Record{}, err
	}
	r, err := mcobuild.Parse(m)
	if err != nil {
		return mcobuild.Record{}, nil //nolint:nilerr // somebody has edited it: it is written anew
	}
	return r, nil
}

func (s records) get(ctx context.Context, build string) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: mcobuild.RecordName(build)}, m)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of MachineOSBuild %s: %w", build, err)
	}
	return m, nil
}

// write makes the record, or changes it where it differs.
func (s records) write(ctx context.Context, r mcobuild.Record) error {
	wanted, err := r.ConfigMap(s.namespace)
	if err != nil {
		return err
	}
	is, err := s.get(ctx, r.Build)
	switch {
	case err != nil:
		return err
	case is == nil:
		err = s.to.Create(ctx, wanted)
	case equality.Semantic.DeepEqual(is.Data, wanted.Data) &&
		equality.Semantic.DeepEqual(is.BinaryData, wanted.BinaryData):
		return nil
	default:
		wanted.ResourceVersion = is.ResourceVersion
		err = s.to.Update(ctx, wanted)
	}
	if err != nil {
		return fmt.Errorf("write record of MachineOSBuild %s: %w", r.Build, err)
	}
	return nil
}

// drop deletes records.
func (s records) drop(ctx context.Context, list []metav1.PartialObjectMetadata) error {
	for _, m := range list {
		err := s.to.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete record %s: %w", m.Name, err)
		}
	}
	return nil
}

// surplus are the oldest records of builds that are gone, beyond those that are kept.
func surplus(w *world, kept []metav1.PartialObjectMetadata, history int) []metav1.PartialObjectMetadata {
	past := slices.DeleteFunc(slices.Clone(kept), w.has)
	slices.SortFunc(past, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(b.Name, a.Name))
	})
	return past[min(history, len(past)):]
}

// has says whether the build of a record is still there.
func (w *world) has(m metav1.PartialObjectMetadata) bool {
	for _, b := range w.builds {
		if b.Name == m.Annotations[manifests.LabelMachineOSBuild] {
			return true
		}
	}
	return false
}
