package optin

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// fieldManager owns what this package writes by server-side apply: single conditions of statuses that others write,
// too.
const fieldManager = "dayone-optin"

// applyConditions writes those of conditions whose types are named, and nothing else of about's status.
func applyConditions(ctx context.Context, c client.Client, about client.Object, conditions []metav1.Condition,
	types ...string) error {
	gvk, err := apiutil.GVKForObject(about, c.Scheme())
	if err != nil {
		return fmt.Errorf("write conditions of %s: %w", about.GetName(), err)
	}
	var entries []any
	for _, condition := range conditions {
		if !slices.Contains(types, condition.Type) {
			continue
		}
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&condition)
		if err != nil {
			return fmt.Errorf("write condition %s of %s: %w", condition.Type, about.GetName(), err)
		}
		entries = append(entries, entry)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": entries}}}
	o.SetGroupVersionKind(gvk)
	o.SetName(about.GetName())
	o.SetUID(about.GetUID()) // never another object of the same name
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(fieldManager),
		client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write conditions of %s %s: %w", gvk.Kind, about.GetName(), err)
	}
	return nil
}
