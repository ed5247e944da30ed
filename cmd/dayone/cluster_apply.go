package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// clusterManager owns the fields that the installation applies.
const clusterManager = "dayone-cluster"

// installer brings objects into a cluster and takes them out.
type installer struct {
	client    client.Client
	namespace string
	// force takes over fields of others.
	force bool
	// asked is what the administrator asked for, before anything was found out about the cluster.
	asked cluster.Options
	out   io.Writer
}

// say tells people how far it is.
func (in *installer) say(format string, args ...any) { fmt.Fprintf(in.out, format+"\n", args...) }

// install applies everything in an order in which nothing refers to what is not there yet, and removes what is not
// wanted any more.
func (in *installer) install(ctx context.Context, o cluster.Options) error {
	objects, err := cluster.Objects(o)
	if err != nil {
		return err
	}
	if err := in.installCRDs(ctx); err != nil {
		return err
	}
	namespaces, rest := split(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
	for _, o := range namespaces {
		if err := in.apply(ctx, o); err != nil {
			return err
		}
	}
	if err := in.rehearse(ctx, rest); err != nil {
		return err
	}
	old, err := in.inventory(ctx)
	if err != nil {
		return err
	}
	wanted := entriesOf(rest)
	// Noted before they are made: whatever happens in between, the next run knows of them.
	if err := in.noteInventory(ctx, union(old, wanted)); err != nil {
		return err
	}
	for _, o := range rest {
		if err := in.apply(ctx, o); err != nil {
			return err
		}
	}
	in.say("%d objects applied", len(objects))
	for _, e := range old {
		if !slices.Contains(wanted, e) {
			if err := in.removeEntry(ctx, e); err != nil {
				return err
			}
		}
	}
	return in.noteInventory(ctx, wanted)
}

func split(objects []*unstructured.Unstructured, first func(*unstructured.Unstructured) bool) (a,
	b []*unstructured.Unstructured) {
	for _, o := range objects {
		if first(o) {
			a = append(a, o)
		} else {
			b = append(b, o)
		}
	}
	return a, b
}

// rehearse asks the apiserver whether it would take every object, so that a refusal comes before anything of it is
// changed.
func (in *installer) rehearse(ctx context.Context, objects []*unstructured.Unstructured) error {
	var bad []error
	for _, o := range objects {
		if o.GetAnnotations()[cluster.AnnotationCreateOnly] == "" {
			if err := in.send(ctx, o.DeepCopy(), client.DryRunAll); err != nil {
				bad = append(bad, err)
			}
		}
	}
	return errors.Join(bad...)
}

// apply makes the object what it should be; one that belongs to the cluster is made only when it is missing.
func (in *installer) apply(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetAnnotations()[cluster.AnnotationCreateOnly] == "" {
		return in.send(ctx, o.DeepCopy())
	}
	err := in.client.Create(ctx, o.DeepCopy(), client.FieldOwner(clusterManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return in.explain(o, err)
	}
	return nil
}

func (in *installer) send(ctx context.Context, o *unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(clusterManager))
	if in.force {
		options = append(options, client.ForceOwnership)
	}
	if err := in.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), options...); err != nil {
		return in.explain(o, err)
	}
	return nil
}

// explain adds what to do to an error of the apiserver.
func (in *installer) explain(o client.Object, err error) error {
	what := fmt.Sprintf("apply %s %s", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w", what, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf(
			"%s: %w (somebody else manages these fields: let them agree, or take them over with "+
				"--force-conflicts)", what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: the cluster does not know this kind: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// installCRDs applies those that are missing or ours, leaves the cluster's own, and waits until all are served.
func (in *installer) installCRDs(ctx context.Context) error {
	crds, err := cluster.CRDs()
	if err != nil {
		return err
	}
	foreign := 0
	for _, crd := range crds {
		var have apiextensionsv1.CustomResourceDefinition
		err := in.get(ctx, crd.Name, &have)
		if client.IgnoreNotFound(err) != nil {
			return in.explain(crd, err)
		}
		if err == nil && have.Labels[cluster.LabelManagedBy] != cluster.ManagedBy {
			if err := serves(&have, crd); err != nil {
				return err
			}
			foreign++
			continue
		}
		o, err := applicableCRD(crd)
		if err != nil {
			return err
		}
		if err := in.send(ctx, o); err != nil {
			return err
		}
	}
	in.say("%d kinds defined, %d of them by the cluster", len(crds), foreign)
	for _, crd := range crds {
		if err := in.awaitEstablished(ctx, crd.Name); err != nil {
			return err
		}
	}
	return nil
}

// applicableCRD is crd as ours.
func applicableCRD(crd *apiextensionsv1.CustomResourceDefinition) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, fmt.Errorf("write CustomResourceDefinition %s: %w", crd.Name, err)
	}
	delete(raw, "status")
	o := &unstructured.Unstructured{Object: raw}
	unstructured.RemoveNestedField(raw, "metadata", "creationTimestamp")
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[cluster.LabelManagedBy], labels[cluster.LabelPartOf] = cluster.ManagedBy, cluster.ManagedBy
	o.SetLabels(labels)
	return o, nil
}

// serves checks that a definition of the cluster's own has every version that dayone speaks.
func serves(have, want *apiextensionsv1.CustomResourceDefinition) error {
	for _, w := range want.Spec.Versions {
		if !w.Served {
			continue
		}
		if !slices.ContainsFunc(have.Spec.Versions,
			func(h apiextensionsv1.CustomResourceDefinitionVersion) bool { return h.Served && h.Name == w.Name }) {
			return fmt.Errorf(
				"the cluster's own CustomResourceDefinition %s does not serve version %s, which dayone needs: bring the "+
					"cluster up to date", want.Name, w.Name)
		}
	}
	return nil
}

func (in *installer) awaitEstablished(ctx context.Context, name string) error {
	return in.await(ctx, "CustomResourceDefinition "+name, func(ctx context.Context) (bool, string, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := in.get(ctx, name, &crd); err != nil {
			return false, "", err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
				return false, "", fmt.Errorf("CustomResourceDefinition %s: names are not accepted: %s", name, c.Message)
			}
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return true, "", nil
			}
		}
		return false, "is not established yet", nil
	})
}

// get reads a definition. The client's scheme has no such kind: it is read as it comes.
func (in *installer) get(ctx context.Context, name string, crd *apiextensionsv1.CustomResourceDefinition) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := in.client.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd)
}

// await looks every second until what is done; a detail that is new is said.
func (in *installer) await(ctx context.Context, what string, done func(context.Context) (bool, string, error)) error {
	said := ""
	err := wait.PollUntilContextCancel(ctx, waitInterval, true, func(ctx context.Context) (bool, error) {
		ok, detail, err := done(ctx)
		if err == nil && !ok && detail != said {
			in.say("waiting: %s %s", what, detail)
			said = detail
		}
		return ok, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s %s", what, said)
	}
	return err
}

// metaOnly is enough of an object to delete it.
func metaOnly(e entry) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind, o.Namespace, o.Name = e.APIVersion, e.Kind, e.Namespace, e.Name
	return o
}
