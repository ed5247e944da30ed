package preflight

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// names refuses objects that the API could not hold: without a valid name, or two of one name. Only one of two would
// reach the cluster, and what is rendered there would differ from what the nodes were installed with.
func names(_ *directory, in *Input, rep *report.Report) {
	uniqueNames(rep, "MachineConfig", in.Set.MachineConfigs)
	uniqueNames(rep, "MachineConfigPool", in.Set.Pools)
	uniqueNames(rep, "Secret", in.Set.Secrets)
	uniqueNames(rep, "ConfigMap", in.Set.ConfigMaps)
}

func uniqueNames[T metav1.Object](rep *report.Report, kind string, items []manifests.Item[T]) {
	first := map[string]manifests.Origin{}
	for _, item := range items {
		name := item.Object.GetName()
		at := item.Origin.At("metadata.name", "name")
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			at.Next = "write lower-case letters, digits, dashes and dots"
			rep.Errorf(at, "%q is not a valid name for a %s", name, kind)
			continue
		}
		key := item.Object.GetNamespace() + "/" + name
		if before, twice := first[key]; twice {
			at.Rule, at.Next = "name-twice", "keep one, or give it another name"
			rep.Errorf(at, "there is another %s %q in %s", kind, name, before.At("", "").Place())
			continue
		}
		first[key] = item.Origin
	}
}
