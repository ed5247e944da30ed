package proposal

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/snapshot"
)

// kinds are the types of objects that a file may hold and be compared with.
type kinds struct {
	types map[schema.GroupVersionKind]reflect.Type
	// words are what kubectl calls a kind: its name, its plural, its short names, in lower case.
	words map[string]schema.GroupVersionKind
}

// names are the kinds that may be deleted, in lower case.
func (k *kinds) names() string {
	var out []string
	for _, gvk := range k.words {
		out = append(out, strings.ToLower(gvk.Kind))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

// knownKinds are those of this program; a process reads them once.
var knownKinds = sync.OnceValues(func() (*kinds, error) {
	dump, err := snapshot.NewDump()
	if err != nil {
		return nil, err
	}
	return newKinds(dump.Scheme())
})

// newKinds takes the objects of a scheme, without what every group has for requests and answers.
func newKinds(scheme *runtime.Scheme) (*kinds, error) {
	k := &kinds{types: map[schema.GroupVersionKind]reflect.Type{}, words: map[string]schema.GroupVersionKind{}}
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || t.PkgPath() == reflect.TypeFor[metav1.Status]().PkgPath() {
			continue
		}
		k.types[gvk] = t
		if name := strings.ToLower(gvk.Kind); forecastKind(gvk.GroupKind()) || notForecast(gvk.GroupKind()) != "" {
			k.words[name], k.words[name+"s"] = gvk, gvk
		}
	}
	crds, err := cluster.CRDs()
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		names := crd.Spec.Names
		gvk, found := k.words[strings.ToLower(names.Kind)]
		if !found || gvk.Group != crd.Spec.Group {
			continue
		}
		for _, word := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
			k.words[word] = gvk
		}
	}
	return k, nil
}

// of reads what a document says it is. What is a slip of a kind that is read here is refused; a kind that is another
// program's is none of types. ok is false where the document is no object.
func (k *kinds) of(o *object, head map[string]any, bad *report.Report) (ok bool) {
	for _, key := range []string{"apiVersion", "kind"} {
		if value, isText := head[key].(string); isText && value != "" {
			continue
		}
		place := o.at(key, "kind-missing")
		place.Next = "write " + key + ": every document needs it; a file that holds no objects belongs elsewhere"
		for other := range head {
			if other != "apiVersion" && other != "kind" && report.Nearest(other, []string{key}) != "" {
				place = o.find(other, "kind-missing", true)
				place.Next = "did you mean " + key + "?"
			}
		}
		bad.Errorf(place, "the document has no %s", key)
		return false
	}
	apiVersion, _ := head["apiVersion"].(string)
	name, _ := head["kind"].(string)
	o.kind = schema.FromAPIVersionAndKind(apiVersion, name)
	if k.types[o.kind] != nil {
		return true
	}
	meant := k.meant(o.kind)
	switch {
	case meant.Empty():
		return true
	case meant.Kind != o.kind.Kind:
		place := o.at("kind", "kind")
		place.Next = "did you mean " + meant.Kind + "?"
		bad.Errorf(place, "there is no kind %s in %s", name, apiVersion)
	default:
		place := o.at("apiVersion", "api-version")
		place.Next = "write apiVersion: " + meant.GroupVersion().String()
		bad.Errorf(place, "%s is not the API of a %s that is read here", apiVersion, name)
	}
	return false
}

// meant is the kind that an unknown one is a slip of; empty: it is another program's.
func (k *kinds) meant(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	var names []string
	for known := range k.types {
		sameAPI := known.GroupVersion() == gvk.GroupVersion()
		if strings.EqualFold(known.Kind, gvk.Kind) && (sameAPI || known.Group == gvk.Group ||
			alike(known.GroupVersion().String(), gvk.GroupVersion().String())) {
			return known
		}
		if sameAPI {
			names = append(names, known.Kind)
		}
	}
	slices.Sort(names)
	if near := report.Nearest(gvk.Kind, names); near != "" {
		return gvk.GroupVersion().WithKind(near)
	}
	return schema.GroupVersionKind{}
}

// forecastKind tells the kinds of which a forecast knows what they do to nodes.
func forecastKind(k schema.GroupKind) bool {
	return slices.Contains([]schema.GroupKind{
		{Group: "machineconfiguration.openshift.io", Kind: "MachineConfig"},
		{Group: "machineconfiguration.openshift.io", Kind: "MachineConfigPool"},
		{Group: "machineconfiguration.openshift.io", Kind: "MachineOSConfig"},
		{Group: "machineconfiguration.openshift.io", Kind: "ControllerConfig"},
		{Group: "machineconfiguration.openshift.io", Kind: "KubeletConfig"},
		{Group: "machineconfiguration.openshift.io", Kind: "ContainerRuntimeConfig"},
		{Group: "machineconfiguration.openshift.io", Kind: "OSImageStream"},
		{Group: "operator.openshift.io", Kind: "MachineConfiguration"},
		{Group: "operator.openshift.io", Kind: "ImageContentSourcePolicy"},
		{Group: "config.openshift.io", Kind: "ImageDigestMirrorSet"},
		{Group: "config.openshift.io", Kind: "ImageTagMirrorSet"},
		{Group: "config.openshift.io", Kind: "Image"},
		{Group: "config.openshift.io", Kind: "ClusterImagePolicy"},
		{Group: "config.openshift.io", Kind: "APIServer"},
		{Kind: "Node"},
	}, k)
}

// notForecast says of kinds that belong to nodes or their images why no forecast covers them.
func notForecast(k schema.GroupKind) string {
	switch k.Kind {
	case "ImagePolicy":
		return "dayone makes nothing of it; a ClusterImagePolicy holds for all namespaces"
	case "FeatureGate":
		return "feature gates change what the platform's own operators render"
	case "PinnedImageSet":
		return "nodes pull and keep its images, and no service notices; how long that takes is not known"
	case "MachineOSBuild", "MachineConfigNode":
		return "controllers write it, and people do not"
	}
	return ""
}

// settingsOfOthers are the kinds of which another renderer makes MachineConfigs where one is at work.
func settingsOfOthers(kind string) bool {
	return slices.Contains([]string{"KubeletConfig", "ContainerRuntimeConfig", "ImageDigestMirrorSet", "ImageTagMirrorSet",
		"ImageContentSourcePolicy", "Image", "APIServer", "ClusterImagePolicy"}, kind)
}

// singletons are the names of objects of which only one counts.
func singletons() map[string]string {
	return map[string]string{"MachineConfiguration": cluster.MachineConfiguration, "Image": "cluster",
		"APIServer": "cluster", "OSImageStream": render.OSImageStreamName,
		"ControllerConfig": render.ControllerConfigName}
}
