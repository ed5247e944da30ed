package cluster

import (
	"bufio"
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func newReader(raw []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(raw)) }

// shape fills o into one object.
func (o Options) shape(object *unstructured.Unstructured) error {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelManagedBy], labels[LabelPartOf] = ManagedBy, ManagedBy
	if o.Version != "" {
		labels[LabelVersion] = labelValue(o.Version)
	}
	if object.GetAnnotations()[AnnotationCreateOnly] != "" {
		// It belongs to the cluster: our mark would make it ours at the next removal.
		delete(labels, LabelManagedBy)
	}
	object.SetLabels(labels)
	switch object.GetKind() {
	case "Namespace":
		o.shapeNamespace(object, labels)
	case "ServiceAccount":
		o.shapeServiceAccount(object)
	case "Deployment", "DaemonSet":
		return o.shapeWorkload(object)
	}
	return nil
}

const enforceLabel = "pod-security.kubernetes.io/enforce"

func (o Options) shapeNamespace(object *unstructured.Unstructured, labels map[string]string) {
	if object.GetName() == o.Namespace && (o.NodeAgent || o.PrivilegedBuilds) {
		labels[enforceLabel] = "privileged"
		object.SetLabels(labels)
	}
}

func (o Options) shapeServiceAccount(object *unstructured.Unstructured) {
	if o.ImagePullSecret != "" {
		object.Object["imagePullSecrets"] = []any{map[string]any{"name": o.ImagePullSecret}}
	}
}

func (o Options) shapeWorkload(object *unstructured.Unstructured) error {
	images := map[string]string{Controller: o.Images.Controller, Builder: o.Images.Builder, Daemon: o.Images.Daemon,
		ConfigServer: o.Images.Controller}
	further := map[string][]any{
		Controller: {"--mode=" + string(o.Mode)},
		Builder:    {"--image=" + o.Images.Builder},
	}
	if o.Mode != Advisor {
		further[Controller] = append(further[Controller], "--builder-image="+o.Images.Builder)
	}
	for _, arg := range o.BuilderArgs {
		further[Controller] = append(further[Controller], "--builder-arg="+arg)
		further[Builder] = append(further[Builder], arg)
	}
	if o.BaseImage != "" {
		further[Controller] = append(further[Controller], "--base-image="+o.BaseImage)
	}
	if o.APIServer != "" {
		further[ConfigServer] = append(further[ConfigServer], "--api-server-url="+o.APIServer)
	}
	if o.NodeAgent {
		further[Controller] = append(further[Controller], "--node-agent")
	}
	if o.Registry != "" {
		further[Controller] = append(further[Controller], "--cluster-registry="+o.Registry)
		further[ConfigServer] = append(further[ConfigServer], "--cluster-registry="+o.Registry)
	}
	if object.GetName() == Controller {
		if err := unstructured.SetNestedField(object.Object, int64(o.Replicas), "spec", "replicas"); err != nil {
			return err
		}
	}
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	for _, c := range containers {
		container, ok := c.(map[string]any)
		if !ok {
			return fmt.Errorf("container is a %T", c)
		}
		name, _ := container["image"].(string)
		if images[name] == "" {
			return fmt.Errorf("no image is known for container %q", name)
		}
		container["image"] = images[name]
		if args, ok := container["args"].([]any); ok {
			container["args"] = append(args, further[name]...)
		}
	}
	return unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")
}

// labelValue makes a version fit a label: semver's build part has a plus sign, and 63 characters are the limit.
func labelValue(version string) string {
	out := []byte(version)
	for i, c := range out {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			out[i] = '_'
		}
	}
	return string(bytes.Trim(out[:min(len(out), 63)], "-_."))
}
