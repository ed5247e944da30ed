package preflight

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// ruleUnknownKind is the rule of findings about documents whose apiVersion or kind nothing knows.
const ruleUnknownKind = "unknown-kind"

// kinds are the types of objects that users write for nodes, by kind, with their apiVersions.
type kinds map[string][]schema.GroupVersion

func knownKinds(scheme *runtime.Scheme) kinds {
	out := kinds{}
	for gvk := range scheme.AllKnownTypes() {
		out[gvk.Kind] = append(out[gvk.Kind], gvk.GroupVersion())
	}
	return out
}

// readKinds are those that dayone reads.
func readKinds() []string {
	return []string{"MachineConfig", "MachineConfigPool", "MachineOSConfig", "ControllerConfig", "KubeletConfig",
		"ContainerRuntimeConfig", "OSImageStream", "FeatureGate", "ImageDigestMirrorSet", "ImageTagMirrorSet",
		"ImageContentSourcePolicy", "Secret", "ConfigMap", "Image", "APIServer", "ClusterImagePolicy"}
}

// typed warns of a document whose apiVersion or kind is a slip: nothing would read it, and nothing would say so. Types
// that are only unknown here pass: clusters have many.
func (k kinds) typed(o outline, origin manifests.Origin, rep *report.Report) {
	have, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil || o.Kind == "" || o.Kind == "List" || slices.Contains(k[o.Kind], have) {
		return // a document without them is refused elsewhere
	}
	at := origin.At("apiVersion", ruleUnknownKind)
	if slices.Contains(readKinds(), o.Kind) {
		want := k[o.Kind][0]
		if !k.otherAPI(have, want) {
			at.Next = "write apiVersion: " + want.String()
			rep.Warnf(at, "there is no %s in %s: nothing reads it", o.Kind, o.APIVersion)
		}
		return
	}
	near := report.Nearest(o.Kind, readKinds())
	if near == "" || k.otherAPI(have, k[near][0]) || k.anywhere(o.Kind, have.Group) {
		return
	}
	at.Path, at.Next = "kind", "did you mean "+near+"? correct the kind"
	rep.Warnf(at, "there is no kind %s in %s: nothing reads it", o.Kind, o.APIVersion)
}

// otherAPI says that an apiVersion belongs to an API that has nothing to do with the wanted one and may have kinds of
// the same names. The core group has no name, and each other is a domain.
func (k kinds) otherAPI(have, want schema.GroupVersion) bool {
	if have.Group == want.Group || !strings.Contains(have.Group, ".") {
		return false
	}
	return report.Nearest(have.Group, []string{want.Group}) == ""
}

// anywhere says that a group has a kind, in whatever version.
func (k kinds) anywhere(kind, group string) bool {
	return slices.ContainsFunc(k[kind], func(gv schema.GroupVersion) bool { return gv.Group == group })
}
