package manifests

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scheme returns a new registry of the API types that this package reads and writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		mcfgv1.Install, configv1.Install, operatorv1alpha1.Install, corev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return scheme, nil
}

// Marshal writes obj as YAML with sorted keys: equal objects give equal bytes. An API object that does not say its
// apiVersion and kind gets them on the way; obj itself is not changed.
func Marshal(obj any) ([]byte, error) {
	if config, ok := obj.(*mcfgv1.MachineConfig); ok {
		named := *config
		if named.GroupVersionKind().Empty() {
			named.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfig"))
		}
		return configYAML(&named)
	}
	if object, ok := obj.(runtime.Object); ok && object.GetObjectKind().GroupVersionKind().Empty() {
		scheme, err := Scheme()
		if err != nil {
			return nil, err
		}
		if kinds, _, err := scheme.ObjectKinds(object); err == nil && len(kinds) > 0 {
			return marshalAs(object, kinds[0])
		}
	}
	return marshal(obj)
}

func marshal(obj any) ([]byte, error) {
	raw, err := MarshalJSON(obj)
	if err != nil {
		return nil, err
	}
	return YAML(raw)
}

func marshalAs(object runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	named := object.DeepCopyObject()
	named.GetObjectKind().SetGroupVersionKind(kind)
	return marshal(named)
}
