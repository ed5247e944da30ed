package manifests

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RebuildKeys are the annotations and labels that request a rebuild, whatever their value: the API's on the
// MachineOSConfig and the original story's on the pool.
func RebuildKeys() []string { return []string{AnnotationRebuild, AnnotationRebuildImage} }

// RequestsRebuild reports whether an object, a MachineOSConfig or its pool, requests a rebuild.
func RequestsRebuild(o metav1.Object) bool {
	return slices.ContainsFunc(RebuildKeys(), func(key string) bool {
		_, annotated := o.GetAnnotations()[key]
		_, labelled := o.GetLabels()[key]
		return annotated || labelled
	})
}
