package handover

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"dayone.dev/dayone/manifests"
)

// manager owns the fields that the hand-over applies.
const manager = "dayone-handover"

// writer writes the objects of a plan.
type writer struct {
	cluster client.Client
	o       Options
	// changed are objects that others have changed in the cluster since, with who did.
	changed map[string]string
}

// applyObjects writes every object of the plan that is not as it should be.
func applyObjects(ctx context.Context, w writer) error {
	for _, s := range w.o.Plan.Steps() {
		var err error
		switch s.Mode {
		case ensure:
			err = w.ensure(ctx, s.Object)
		case apply:
			err = w.apply(ctx, s.Object)
		case seed:
			err = w.seed(ctx, s.Object)
		}
		if err != nil {
			return ofCluster(err)
		}
	}
	return nil
}

// ensure makes an object that is missing.
func (w writer) ensure(ctx context.Context, o client.Object) error {
	what := describe(o)
	there, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fatal{fmt.Errorf("%s is no object of the API", what)}
	}
	err := w.cluster.Get(ctx, client.ObjectKeyFromObject(o), there)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read %s: %w", what, err)
	}
	fresh, _ := o.DeepCopyObject().(client.Object)
	fresh.SetResourceVersion("")
	fresh.SetUID("")
	fresh.SetOwnerReferences(nil)
	if err := w.cluster.Create(ctx, fresh, client.FieldOwner(manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %s: %w", what, err)
	}
	w.o.Log.WithField("object", what).Info("object is handed over")
	return nil
}

// apply owns the fields that the object has. Where another field manager has set one of them otherwise the object
// stays as it is: that is a change after the installation began, and whether it matters shows in what the cluster
// renders.
func (w writer) apply(ctx context.Context, o client.Object) error {
	what := describe(o)
	body, err := w.applicable(o)
	if err != nil {
		return fatal{err}
	}
	err = w.cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(manager))
	if who, ok := managed(err); ok {
		if w.changed[what] == "" {
			w.o.Log.WithField("object", what).WithField("manager", who).
				Warn("object was changed in the cluster and stays as it is")
		}
		w.changed[what] = who
		return nil
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", what, err)
	}
	delete(w.changed, what)
	return nil
}

// managed tells a conflict over fields from one over versions, and who has the fields.
func managed(err error) (string, bool) {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return "", false
	}
	var who []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			who = append(who, c.Message+" at "+c.Field)
		}
	}
	return strings.Join(who, "; "), len(who) > 0
}

// applicable is an object as server-side apply takes it: with its kind, without what the API adds, without what says
// nothing.
func (w writer) applicable(o client.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", describe(o), err)
	}
	gvk, err := apiutil.GVKForObject(o, w.cluster.Scheme())
	if err != nil {
		return nil, fmt.Errorf("find kind of %s: %w", o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: raw}
	u.SetGroupVersionKind(gvk)
	for _, field := range []string{"creationTimestamp", "resourceVersion", "uid", "generation", "managedFields",
		"ownerReferences", "selfLink"} {
		unstructured.RemoveNestedField(raw, "metadata", field)
	}
	if spec, ok := raw["spec"].(map[string]any); ok {
		for key, value := range spec {
			if value == nil {
				delete(spec, key)
			}
		}
	}
	delete(raw, "status")
	return u, nil
}

// describe names an object for people.
func describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		if s, err := manifests.Scheme(); err == nil {
			if gvk, err := apiutil.GVKForObject(o, s); err == nil {
				kind = gvk.Kind
			}
		}
	}
	if o.GetNamespace() != "" {
		return kind + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return kind + " " + o.GetName()
}
