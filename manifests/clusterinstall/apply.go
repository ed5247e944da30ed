package clusterinstall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// applier makes objects what they should be.
type applier struct {
	client client.Client
	// force takes over fields of other field managers.
	force bool
}

// apply applies an object server-side; one that belongs to the cluster is only created when it is missing.
func (a applier) apply(ctx context.Context, o *unstructured.Unstructured) error {
	if !createOnly(o) {
		return a.send(ctx, o)
	}
	err := a.client.Create(ctx, o.DeepCopy(), client.FieldOwner(fieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return explain(o, err)
	}
	return nil
}

func (a applier) send(ctx context.Context, o *unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(fieldManager))
	if a.force {
		options = append(options, client.ForceOwnership)
	}
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), options...)
	if err != nil {
		return explain(o, err)
	}
	return nil
}

// rehearse asks the API server whether it would take every object, so that it refuses before anything is changed.
func (a applier) rehearse(ctx context.Context, objects []*unstructured.Unstructured) error {
	var bad []error
	for _, o := range objects {
		if !createOnly(o) {
			bad = append(bad, a.send(ctx, o, client.DryRunAll))
		}
	}
	return errors.Join(bad...)
}

// note stores the record.
func (a applier) note(ctx context.Context, r record, namespace string) error {
	o, err := r.configMap(namespace)
	if err != nil {
		return err
	}
	return a.send(ctx, o)
}

// explain adds to an error of the API server what to do.
func explain(o *unstructured.Unstructured, err error) error {
	what := fmt.Sprintf("apply %s %s", o.GetKind(), o.GetName())
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w (another field manager owns these fields: let both agree, or take them over with "+
			"--force-conflicts)", what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: the cluster does not know this kind: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// applyCRDs applies the definitions that are missing or dayone's, leaves the cluster's own, and waits until all are
// served.
func applyCRDs(ctx context.Context, t Target, a applier) error {
	crds, err := cluster.CRDs()
	if err != nil {
		return err
	}
	foreign := 0
	for _, crd := range crds {
		o, err := marked(crd)
		if err != nil {
			return err
		}
		have, err := readCRD(ctx, t.Client, crd.Name)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return explain(o, err)
		case err == nil && have.Labels[cluster.LabelManagedBy] != cluster.ManagedBy:
			foreign++
			err = serves(have, crd)
		default:
			err = a.send(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	t.say("%d kinds defined, %d of them by the cluster", len(crds), foreign)
	for _, crd := range crds {
		err := t.await(ctx, "CustomResourceDefinition "+crd.Name, func(ctx context.Context) (bool, string, error) {
			have, err := readCRD(ctx, t.Client, crd.Name)
			if err != nil {
				return false, "", err
			}
			ok, err := established(have)
			return ok, "is not established yet", err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readCRD reads a definition. A client's scheme need not have the kind: it is read without.
func readCRD(ctx context.Context, c client.Reader, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := c.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd)
}

// serves checks that a definition of the cluster's own has every version that dayone speaks.
func serves(have, needed *apiextensionsv1.CustomResourceDefinition) error {
	for _, n := range needed.Spec.Versions {
		if n.Served && !slices.ContainsFunc(have.Spec.Versions,
			func(h apiextensionsv1.CustomResourceDefinitionVersion) bool { return h.Served && h.Name == n.Name }) {
			return fmt.Errorf("the cluster's own CustomResourceDefinition %s does not serve version %s, which dayone "+
				"needs: bring the cluster up to date", needed.Name, n.Name)
		}
	}
	return nil
}

// established tells whether the API server serves a definition.
func established(crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return false, fmt.Errorf("CustomResourceDefinition %s: its names are not accepted: %s", crd.Name, c.Message)
		}
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return true, nil
		}
	}
	return false, nil
}
