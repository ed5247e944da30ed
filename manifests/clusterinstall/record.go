package clusterinstall

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// recordName is the ConfigMap in which an installation keeps its record.
const recordName = "dayone-inventory"

// takeOverKey is the record's key of record.TakeOver.
const takeOverKey = "takeOver"

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

// entries are the objects that an installation may remove again: not those that belong to the cluster.
func entries(objects []*unstructured.Unstructured) []entry {
	var list []entry
	for _, o := range objects {
		if !createOnly(o) {
			list = append(list, entry{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()})
		}
	}
	return list
}

// lateEntries are objects that a program makes while it works. They are noted, too: an older version that is installed
// over this one does not know them, and removes what is noted and not its own.
func lateEntries(o cluster.Options, namespace string) []entry {
	if modeOf(o) != cluster.Full {
		return nil
	}
	return []entry{{appsv1.SchemeGroupVersion.String(), "Deployment", namespace, cluster.Builder}}
}

// record is what an installation keeps about itself in the cluster.
type record struct {
	// Objects are what it has made, in the order in which it was made.
	Objects []entry
	// Options are what the administrator asked for, before the cluster filled in anything.
	Options cluster.Options
	// TakeOver is what there was of the Machine Config Operator before dayone took its place; nil: dayone has not.
	TakeOver *takeOver
}

// Installed are the options of the installation in the namespace, and without a namespace in one of those that the
// modes have by default; nil when there is none. Their Namespace is where it is.
func Installed(ctx context.Context, t Target) (o *cluster.Options, err error) {
	err = t.within(ctx, func(ctx context.Context) error {
		for _, namespace := range places(t.Namespace) {
			r, err := readRecord(ctx, t.Client, namespace)
			if err != nil {
				return err
			}
			if r != nil {
				o = &r.Options
				o.Mode, o.Namespace = modeOf(*o), namespace
				return nil
			}
		}
		return nil
	})
	return o, err
}

// places are the namespaces in which an installation is looked for.
func places(namespace string) []string {
	if namespace != "" {
		return []string{namespace}
	}
	return []string{cluster.DefaultNamespace, cluster.AdvisorNamespace}
}

// readRecord reads the record of the installation in the namespace; nil when there is none.
func readRecord(ctx context.Context, c client.Reader, namespace string) (*record, error) {
	key := client.ObjectKey{Namespace: namespace, Name: recordName}
	var m corev1.ConfigMap
	err := c.Get(ctx, key, &m)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	r := &record{}
	for name, into := range map[string]any{"objects": &r.Objects, "options": &r.Options, takeOverKey: &r.TakeOver} {
		if _, there := m.Data[name]; name == takeOverKey && !there {
			continue
		}
		if err := json.Unmarshal([]byte(m.Data[name]), into); err != nil {
			return nil, fmt.Errorf("read ConfigMap %s: key %s: %w (delete it: the next installation makes it anew)",
				key, name, err)
		}
	}
	return r, nil
}

// configMap is the record as it is stored.
func (r record) configMap(namespace string) (*unstructured.Unstructured, error) {
	data := map[string]any{"version": r.Options.Version}
	values := map[string]any{"objects": r.Objects, "options": r.Options}
	if r.TakeOver != nil {
		values[takeOverKey] = r.TakeOver
	}
	for key, value := range values {
		raw, err := json.MarshalIndent(value, "", " ")
		if err != nil {
			return nil, fmt.Errorf("write ConfigMap %s: %w", recordName, err)
		}
		data[key] = string(raw)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o.SetNamespace(namespace)
	o.SetName(recordName)
	o.SetLabels(map[string]string{cluster.LabelManagedBy: cluster.ManagedBy, cluster.LabelPartOf: cluster.ManagedBy})
	return o, nil
}

// otherInstallation is the namespace of an installation elsewhere in the cluster, or nothing: two would share their
// cluster-wide roles.
func otherInstallation(ctx context.Context, c client.Reader, namespace string) (string, error) {
	var list corev1.ConfigMapList
	err := c.List(ctx, &list, client.MatchingLabels{cluster.LabelManagedBy: cluster.ManagedBy,
		cluster.LabelPartOf: cluster.ManagedBy})
	if err != nil {
		return "", fmt.Errorf("look for another installation: %w", err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; m.Name == recordName && m.Namespace != namespace {
			return m.Namespace, nil
		}
	}
	return "", nil
}
