package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// inventoryName is the ConfigMap that lists what an installation has made.
const inventoryName = "dayone-inventory"

// waitInterval is how often the cluster is looked at while something is waited for.
const waitInterval = time.Second

// entry names one installed object.
type entry struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

func (e entry) String() string {
	if e.Namespace == "" {
		return e.Kind + " " + e.Name
	}
	return e.Kind + " " + e.Namespace + "/" + e.Name
}

// entriesOf are the objects that an installation may remove again: not those that belong to the cluster.
func entriesOf(objects []*unstructured.Unstructured) []entry {
	var list []entry
	for _, o := range objects {
		if o.GetAnnotations()[cluster.AnnotationCreateOnly] == "" {
			list = append(list, entry{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()})
		}
	}
	return list
}

func union(a, b []entry) []entry {
	all := slices.Clone(a)
	for _, e := range b {
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// record is what an installation notes of itself.
type record struct {
	// Objects are what it has made, in the order in which it was made.
	Objects []entry
	// Options are what the administrator asked for.
	Options cluster.Options
}

// record reads what the installation in the namespace has noted; nil when there is none.
func (in *installer) record(ctx context.Context) (*record, error) {
	var m corev1.ConfigMap
	err := in.client.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: inventoryName}, &m)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", in.namespace, inventoryName, err)
	}
	r := &record{}
	for key, into := range map[string]any{"objects": &r.Objects, "options": &r.Options} {
		if err := json.Unmarshal([]byte(m.Data[key]), into); err != nil {
			return nil, fmt.Errorf("read ConfigMap %s/%s: key %s: %w (delete it: the next installation makes it anew)",
				in.namespace, inventoryName, key, err)
		}
	}
	return r, nil
}

// inventory is the record's list; without a record it is empty.
func (in *installer) inventory(ctx context.Context) ([]entry, error) {
	r, err := in.record(ctx)
	if err != nil || r == nil {
		return nil, err
	}
	return r.Objects, nil
}

func (in *installer) noteInventory(ctx context.Context, list []entry) error {
	data := map[string]any{"version": version}
	for key, value := range map[string]any{"objects": list, "options": in.asked} {
		raw, err := json.MarshalIndent(value, "", " ")
		if err != nil {
			return fmt.Errorf("write inventory: %w", err)
		}
		data[key] = string(raw)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o.SetNamespace(in.namespace)
	o.SetName(inventoryName)
	o.SetLabels(map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy})
	return in.send(ctx, o)
}

// otherInstallation is the namespace of an installation elsewhere in the cluster, or nothing: two would share their
// cluster-wide roles.
func (in *installer) otherInstallation(ctx context.Context) (string, error) {
	var list corev1.ConfigMapList
	err := in.client.List(ctx, &list, client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy,
		cluster.LabelPartOf: cluster.ManagedBy})
	if err != nil {
		return "", fmt.Errorf("look for another installation: %w", err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; m.Name == inventoryName && m.Namespace != in.namespace {
			return m.Namespace, nil
		}
	}
	return "", nil
}

// removeEntry deletes an object that dayone made. One without dayone's mark has become somebody else's and stays.
func (in *installer) removeEntry(ctx context.Context, e entry) error {
	o := metaOnly(e)
	err := in.client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, o)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", e, err)
	case o.GetLabels()[cluster.LabelManagedBy] != cluster.ManagedBy || e.Kind == "Namespace":
		in.say("%s stays: it is not dayone's", e)
		return nil
	}
	uid := o.GetUID()
	if err := in.client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", e, err)
	}
	in.say("%s removed", e)
	return nil
}
