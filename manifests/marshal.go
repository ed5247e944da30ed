package manifests

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
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
	if object, ok := obj.(runtime.Object); ok && object.GetObjectKind().GroupVersionKind().Empty() {
		scheme, err := Scheme()
		if err != nil {
			return nil, err
		}
		if kinds, _, err := scheme.ObjectKinds(object); err == nil && len(kinds) > 0 {
			named := object.DeepCopyObject()
			named.GetObjectKind().SetGroupVersionKind(kinds[0])
			obj = named
		}
	}
	raw, err := yaml.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("write %T as YAML: %w", obj, err)
	}
	return raw, nil
}
