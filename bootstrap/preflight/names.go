package preflight

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// names refuses objects that the API could not hold: without a name, with one that is none, or two of one name. Only
// one of two would reach the cluster, and what is rendered there would differ from what the nodes were installed with.
func (c *checker) names() {
	uniqueNames(c.rep, "MachineConfig", c.in.Set.MachineConfigs)
	uniqueNames(c.rep, "MachineConfigPool", c.in.Set.Pools)
	uniqueNames(c.rep, "Secret", c.in.Set.Secrets)
}

func uniqueNames[T metav1.Object](rep *report.Report, kind string, items []manifests.Item[T]) {
	first := map[string]manifests.Origin{}
	for _, item := range items {
		name := item.Object.GetName()
		at := item.Origin.At("metadata.name", "name")
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			at.Next = "write lower-case letters, digits, dashes and dots"
			rep.Errorf(at, "%q is no name for a %s", name, kind)
			continue
		}
		key := strings.Join([]string{item.Object.GetNamespace(), name}, "/")
		if before, twice := first[key]; twice {
			at.Rule, at.Next = "name-twice", "keep one, or give it another name"
			rep.Errorf(at, "there is another %s %q in %s", kind, name, before.At("", "").Place())
			continue
		}
		first[key] = item.Origin
	}
}
