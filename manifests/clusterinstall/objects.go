package clusterinstall

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Objects are everything that an installation has, in the order in which it is applied: CRDs first. Beside a Machine
// Config Operator the kinds are the cluster's own.
func Objects(o cluster.Options) ([]*unstructured.Unstructured, error) {
	if !o.DefinesKinds() {
		return cluster.Objects(o)
	}
	crds, err := cluster.CRDs()
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, crd := range crds {
		object, err := marked(crd)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	rest, err := cluster.Objects(o)
	return append(all, rest...), err
}

// marked is a definition with dayone's mark, in the form in which it is applied.
func marked(crd *apiextensionsv1.CustomResourceDefinition) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, fmt.Errorf("write CustomResourceDefinition %s: %w", crd.Name, err)
	}
	delete(raw, "status")
	unstructured.RemoveNestedField(raw, "metadata", "creationTimestamp")
	o := &unstructured.Unstructured{Object: raw}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[cluster.LabelManagedBy], labels[cluster.LabelPartOf] = cluster.ManagedBy, cluster.ManagedBy
	o.SetLabels(labels)
	return o, nil
}

// createOnly tells an object that belongs to the cluster as soon as it is there.
func createOnly(o *unstructured.Unstructured) bool {
	return o.GetAnnotations()[cluster.AnnotationCreateOnly] != ""
}

// YAML is the objects as a stream of documents.
func YAML(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		body, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("write %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(body)
	}
	return out.Bytes(), nil
}

// WriteKustomize writes a file for each object and a kustomization that names them in order. The directory must not
// exist or be empty.
func WriteKustomize(dir string, objects []*unstructured.Unstructured) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write kustomize directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("write kustomize directory: %s is not empty", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write kustomize directory: %w", err)
	}
	var list bytes.Buffer
	list.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for i, o := range objects {
		body, err := yaml.Marshal(o.Object)
		name := fmt.Sprintf("%02d-%s-%s.yaml", i, strings.ToLower(o.GetKind()), o.GetName())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), body, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write kustomize directory: %w", err)
		}
		fmt.Fprintf(&list, "- %s\n", name)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), list.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write kustomize directory: %w", err)
	}
	return nil
}
