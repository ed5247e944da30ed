package buildcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// storage keeps what controller-runtime's in-memory client writes. It passes an object through JSON when it is written,
// so that Get and List may hand out copies. The client itself writes and reads JSON for each object at each Get and
// List, which were two fifths of the cost of a random sequence. It has no field managers, which cost more still.
type storage struct {
	clienttesting.ObjectTracker
	scheme *k8sruntime.Scheme
}

func newStorage(scheme *k8sruntime.Scheme) storage {
	return storage{clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()), scheme}
}

func (s storage) Create(gvr schema.GroupVersionResource, o k8sruntime.Object, ns string,
	opts ...metav1.CreateOptions) error {
	written, err := asWritten(o)
	if err != nil {
		return err
	}
	return s.ObjectTracker.Create(gvr, written, ns, opts...)
}

func (s storage) Update(gvr schema.GroupVersionResource, o k8sruntime.Object, ns string,
	opts ...metav1.UpdateOptions) error {
	written, err := asWritten(o)
	if err != nil {
		return err
	}
	return s.ObjectTracker.Update(gvr, written, ns, opts...)
}

func (s storage) Patch(gvr schema.GroupVersionResource, o k8sruntime.Object, ns string,
	opts ...metav1.PatchOptions) error {
	written, err := asWritten(o)
	if err != nil {
		return err
	}
	return s.ObjectTracker.Patch(gvr, written, ns, opts...)
}

// asWritten is an object as it comes back from an API server: times in seconds, nothing that JSON leaves out.
func asWritten(o k8sruntime.Object) (k8sruntime.Object, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	out, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(k8sruntime.Object)
	if !ok {
		return nil, fmt.Errorf("keep %T: not an object", o)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out, nil
}

// get is the client's Get.
func (s storage) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object,
	opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, s.scheme)
	if err != nil {
		return err
	}
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	found, err := s.ObjectTracker.Get(gvr, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	if reflect.TypeOf(found) != reflect.TypeOf(into) { // only the metadata is asked for
		return c.Get(ctx, key, into, opts...)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found).Elem())
	return nil
}

// list is the client's List.
func (s storage) list(ctx context.Context, c client.WithWatch, into client.ObjectList,
	opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	gvk, err := apiutil.GVKForObject(into, s.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	all, err := s.ObjectTracker.List(gvr, gvk, o.Namespace)
	if err != nil {
		return err
	}
	if reflect.TypeOf(all) != reflect.TypeOf(into) {
		return c.List(ctx, into, opts...)
	}
	objects, err := meta.ExtractList(all)
	if err != nil {
		return err
	}
	kept := make([]k8sruntime.Object, 0, len(objects))
	for _, object := range objects {
		yes, err := selected(object, o)
		if err != nil {
			return err
		}
		if yes {
			kept = append(kept, object)
		}
	}
	reflect.ValueOf(into).Elem().SetZero()
	return meta.SetList(into, kept)
}

// selected says whether the options of a list want an object. Fields are those of buildIndexes; another one is refused,
// as a cache without its index does.
func selected(object k8sruntime.Object, o client.ListOptions) (bool, error) {
	if o.LabelSelector != nil {
		labelled, err := meta.Accessor(object)
		if err != nil || !o.LabelSelector.Matches(labels.Set(labelled.GetLabels())) {
			return false, err
		}
	}
	if o.FieldSelector == nil {
		return true, nil
	}
	build, ok := object.(*mcfgv1.MachineOSBuild)
	for _, r := range o.FieldSelector.Requirements() {
		index := buildIndexes()[r.Field]
		if !ok || index == nil {
			return false, fmt.Errorf("list %T: no index %s", object, r.Field)
		}
		if !slices.Contains(index(build), r.Value) {
			return false, nil
		}
	}
	return true, nil
}
