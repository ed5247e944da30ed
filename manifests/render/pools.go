package render

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/manifests"
)

// workerRole is the role whose MachineConfigs come first in every pool: custom pools build on the worker's.
const workerRole = "worker"

// uniquePools keeps one pool of each name, in order of names: the last one read, but any other rather than the one that
// MCO ships.
func uniquePools(pools []manifests.Item[*mcfgv1.MachineConfigPool]) []manifests.Item[*mcfgv1.MachineConfigPool] {
	byName := map[string]manifests.Item[*mcfgv1.MachineConfigPool]{}
	for _, p := range pools {
		known, twice := byName[p.Object.Name]
		if twice && builtIn(p.Object) && !builtIn(known.Object) {
			continue
		}
		byName[p.Object.Name] = p
	}
	var out []manifests.Item[*mcfgv1.MachineConfigPool]
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// builtIn says whether a pool is what MCO ships: its mark, the selectors by role, and nothing else in the spec.
func builtIn(pool *mcfgv1.MachineConfigPool) bool {
	if _, marked := pool.Labels[manifests.LabelBuiltInPool]; !marked {
		return false
	}
	plain := mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: pool.Name}},
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" +
			pool.Name: ""}},
	}
	return reflect.DeepEqual(pool.Spec, plain) && len(pool.Annotations) == 0
}

// selectComponents returns a pool's MachineConfigs in merge order: role worker first, then all others, each group by
// name in byte order, equal names in reading order.
func (w *work) selectComponents(
	pool manifests.Item[*mcfgv1.MachineConfigPool]) []manifests.Item[*mcfgv1.MachineConfig] {
	place := pool.Origin.At("spec.machineConfigSelector", "selection")
	selected, err := matching(pool.Object, w.components)
	if err != nil {
		place.Next = "see the Kubernetes documentation on label selectors"
		w.report.Errorf(place, "pool %s: %s", pool.Object.Name, err)
		return nil
	}
	if len(selected) == 0 {
		place.Next = "select MachineConfigs, for example by the label " + manifests.LabelRole
		w.report.Errorf(place, "pool %s selects no MachineConfig", pool.Object.Name)
		return nil
	}
	for _, c := range selected {
		if len(c.Object.Labels) == 0 {
			at := c.Origin.At("metadata.labels", "selection")
			at.Next = "give it the label " + manifests.LabelRole + ", or change the selector of pool " + pool.Object.Name
			w.report.Errorf(at, "pool %s selects MachineConfig %s, which has no labels", pool.Object.Name, c.Object.Name)
		}
	}
	return selected
}

// matching selects and orders. An absent or empty selector matches nothing.
func matching(pool *mcfgv1.MachineConfigPool,
	components []manifests.Item[*mcfgv1.MachineConfig]) ([]manifests.Item[*mcfgv1.MachineConfig], error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil || selector.Empty() {
		return nil, err
	}
	var first, second []manifests.Item[*mcfgv1.MachineConfig]
	for _, c := range components {
		switch {
		case !selector.Matches(labels.Set(c.Object.Labels)):
		case c.Object.Labels[manifests.LabelRole] == workerRole:
			first = append(first, c)
		default:
			second = append(second, c)
		}
	}
	byName := func(a, b manifests.Item[*mcfgv1.MachineConfig]) int {
		return strings.Compare(a.Object.Name, b.Object.Name)
	}
	slices.SortStableFunc(first, byName)
	slices.SortStableFunc(second, byName)
	return append(first, second...), nil
}
