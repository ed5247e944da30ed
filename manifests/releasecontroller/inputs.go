package releasecontroller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// maxInputs bounds what the Job is given, in bytes: a Secret holds 1 MiB (Kubernetes, MaxSecretSize).
const maxInputs = 1000 << 10

// rawMarker stands in the ControllerConfig for the version of the program that reads it: it takes no other's.
const rawMarker = "@RAW@"

// kind is one kind of objects that MCO's program reads. name picks one object, empty: all. status says that it is read.
type kind struct {
	schema.GroupVersionKind
	name   string
	status bool
}

// kinds are read in this order. A cluster may be without some.
func kinds() []kind {
	machine, config := mcfgv1.GroupVersion.WithKind, configv1.GroupVersion.WithKind
	return []kind{
		{GroupVersionKind: machine("MachineConfigPool")}, {GroupVersionKind: machine("KubeletConfig")},
		{GroupVersionKind: machine("ContainerRuntimeConfig")},
		{GroupVersionKind: machine("OSImageStream"), status: true},
		{GroupVersionKind: config("FeatureGate"), name: "cluster", status: true},
		{GroupVersionKind: config("Node"), name: "cluster"}, {GroupVersionKind: config("APIServer"), name: "cluster"},
		{GroupVersionKind: config("Image"), name: "cluster", status: true},
		{GroupVersionKind: config("ImageDigestMirrorSet")}, {GroupVersionKind: config("ImageTagMirrorSet")},
		{GroupVersionKind: config("ClusterImagePolicy")}, {GroupVersionKind: config("ImagePolicy")},
		{GroupVersionKind: operatorv1alpha1.GroupVersion.WithKind("ImageContentSourcePolicy")},
	}
}

// inputs are what the program makes MachineConfigs of.
type inputs struct {
	release release
	// objects are the manifests as a stream of JSON, pullSecret the cluster's Secret as a manifest.
	objects, pullSecret []byte
	// controller is the ControllerConfig as it is to be, but for its annotations.
	controller *unstructured.Unstructured
	// live is the ControllerConfig as it is.
	live  *unstructured.Unstructured
	token string
	// streams is the cluster's OSImageStream; nil: there is none.
	streams *unstructured.Unstructured
	pools   map[string]*unstructured.Unstructured
}

// name is that of the objects which are made for the state.
func (in inputs) name() string { return prefix + "-" + in.token[len(in.release.version)+1:] }

// gather reads the state. known are the kinds that the cluster has, controller is the live ControllerConfig.
func gather(ctx context.Context, live client.Reader, known []kind, rel release,
	controller *unstructured.Unstructured) (inputs, error) {
	in := inputs{release: rel, live: controller, pools: map[string]*unstructured.Unstructured{}}
	var err error
	if in.controller, err = wanted(ctx, live, rel, controller); err != nil {
		return in, err
	}
	var out bytes.Buffer
	if err := add(&out, forProgram(in.controller)); err != nil {
		return in, err
	}
	for _, k := range known {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		if err := live.List(ctx, &list); err != nil {
			return in, fmt.Errorf("list %s: %w", k.Kind, err)
		}
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
			return bytes.Compare([]byte(a.GetNamespace()+"/"+a.GetName()), []byte(b.GetNamespace()+"/"+b.GetName()))
		})
		for i := range list.Items {
			if err := in.take(&out, k, &list.Items[i]); err != nil {
				return in, err
			}
		}
	}
	in.objects = out.Bytes()
	if in.pullSecret, err = pullSecret(ctx, live); err != nil {
		return in, err
	}
	if n := len(in.objects) + len(in.pullSecret); n > maxInputs {
		return in, stateError{reason: "ReleaseInputsTooLarge", text: fmt.Sprintf("the cluster's settings for nodes have %d "+
			"bytes, a Job can be given %d: shorten certificates bundles or split mirror sets", n, maxInputs)}
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(script), []byte(rel.operator), in.objects, in.pullSecret} {
		fmt.Fprintf(sum, "%d\n", len(part))
		sum.Write(part)
	}
	in.token = rel.version + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
	return in, nil
}

// take adds an object, if it counts, in the form in which the program needs it.
func (in *inputs) take(out *bytes.Buffer, k kind, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() != nil || k.name != "" && o.GetName() != k.name {
		return nil
	}
	o.SetGroupVersionKind(k.GroupVersionKind)
	switch k.Kind {
	case "OSImageStream":
		in.streams = o.DeepCopy()
		// The program finds the images itself; what it found last is written here, and is no reason to look again.
		unstructured.RemoveNestedField(o.Object, "status", "availableStreams")
	case "FeatureGate":
		if err := ofVersion(o, in.release.version); err != nil {
			return err
		}
	case "MachineConfigPool":
		in.pools[o.GetName()] = o.DeepCopy()
		// What a pool selects of other roles is that role's result.
		spec := map[string]any{"machineConfigSelector": map[string]any{"matchLabels": map[string]any{
			manifests.LabelRole: o.GetName()}}}
		if stream, found, _ := unstructured.NestedMap(o.Object, "spec", "osImageStream"); found {
			spec["osImageStream"] = stream
		}
		o.Object["spec"] = spec
	}
	if !k.status {
		delete(o.Object, "status")
	}
	return add(out, plain(o))
}

// ofVersion leaves a FeatureGate the features of one release. Until the cluster's config operator has listed them the
// program would end.
func ofVersion(o *unstructured.Unstructured, version string) error {
	all, _, err := unstructured.NestedSlice(o.Object, "status", "featureGates")
	if err != nil {
		return fmt.Errorf("read FeatureGate: %w", err)
	}
	all = slices.DeleteFunc(all, func(v any) bool {
		details, _ := v.(map[string]any)
		return details["version"] != version
	})
	if len(all) == 0 {
		return stateError{reason: "FeatureGateOutstanding", waiting: true, text: "FeatureGate cluster does not list " +
			"release " + version + " yet: the cluster's config operator writes it"}
	}
	return unstructured.SetNestedSlice(o.Object, all, "status", "featureGates")
}

// plain is an object without what the API server writes into it.
func plain(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: maps.Clone(o.Object)}
	out.Object["metadata"] = map[string]any{"name": o.GetName()}
	if o.GetNamespace() != "" {
		out.SetNamespace(o.GetNamespace())
	}
	out.SetLabels(o.GetLabels())
	annotations := o.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == corev1.LastAppliedConfigAnnotation || len(key) > len(manifests.DayonePrefix) &&
			key[:len(manifests.DayonePrefix)] == manifests.DayonePrefix
	})
	if o.GetKind() != "MachineConfigPool" && len(annotations) > 0 {
		out.SetAnnotations(annotations)
	}
	return out
}

func add(out *bytes.Buffer, o *unstructured.Unstructured) error {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	out.Write(raw)
	out.WriteString("\n")
	return nil
}

// wanted is the ControllerConfig with the release's images.
func wanted(ctx context.Context, live client.Reader, rel release,
	controller *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out := controller.DeepCopy()
	set := func(value any, field string) error {
		return unstructured.SetNestedField(out.Object, value, "spec", field)
	}
	images := map[string]any{}
	for key, image := range rel.images {
		images[key] = image
	}
	values := map[string]any{"images": images, "baseOSContainerImage": rel.os,
		"baseOSExtensionsContainerImage": rel.extensions}
	var v configv1.ClusterVersion
	err := live.Get(ctx, client.ObjectKey{Name: cluster.ClusterVersionName}, &v)
	if err != nil {
		return nil, fmt.Errorf("read ClusterVersion: %w", err)
	}
	if v.Status.Desired.Version == rel.version { // else the images are still the former release's
		values["releaseImage"] = v.Status.Desired.Image
	}
	for field, value := range values {
		if err := set(value, field); err != nil {
			return nil, fmt.Errorf("change ControllerConfig: %w", err)
		}
	}
	return out, nil
}

// forProgram is the ControllerConfig as the Job gets it: with the reader's own version, and without a credential that
// no template has.
func forProgram(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := plain(o.DeepCopy())
	delete(out.Object, "status")
	unstructured.RemoveNestedField(out.Object, "spec", "internalRegistryPullSecret")
	out.SetAnnotations(map[string]string{manifests.AnnotationGeneratedByVersion: rawMarker})
	return out
}

// pullSecret is the cluster's, as a manifest.
func pullSecret(ctx context.Context, live client.Reader) ([]byte, error) {
	var s corev1.Secret
	key := client.ObjectKey{Namespace: cluster.PullSecretNamespace, Name: cluster.PullSecretName}
	if err := live.Get(ctx, key, &s); err != nil {
		return nil, fmt.Errorf("read pull secret: %w", err)
	}
	raw := s.Data[corev1.DockerConfigJsonKey]
	if s.Type != corev1.SecretTypeDockerConfigJson || !json.Valid(raw) {
		return nil, stateError{reason: "PullSecretMalformed", text: fmt.Sprintf("Secret %s/%s has no JSON of type %s: "+
			"correct it, it goes to every node", key.Namespace, key.Name, corev1.SecretTypeDockerConfigJson)}
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "type": s.Type,
		"metadata": map[string]any{"name": s.Name, "namespace": s.Namespace},
		"data":     map[string]any{corev1.DockerConfigJsonKey: raw}})
}
