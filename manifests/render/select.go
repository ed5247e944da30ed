package render

import (
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// workerRole is the role whose MachineConfigs come first in every pool: custom pools build on the worker's.
const workerRole = "worker"

// selection is a pool with its components in merge order.
type selection struct {
	pool       pool
	components []component
}

// selectAll selects for every pool that the options want; a pool whose selection is refused is left out.
func selectAll(pools []pool, components []component, o Options) ([]selection, []report.Finding) {
	var (
		out []selection
		bad report.Report
	)
	for _, p := range pools {
		if !o.wants(p.Object.Name) {
			continue
		}
		place := p.Origin.At("spec.machineConfigSelector", "selection")
		selected, err := matching(p.Object, components)
		switch {
		case err != nil:
			place.Next = "see the Kubernetes documentation on label selectors"
			bad.Errorf(place, "pool %s: %s", p.Object.Name, err)
			continue
		case len(selected) == 0:
			place.Next = "select MachineConfigs, for example by the label " + manifests.LabelRole
			bad.Errorf(place, "pool %s selects no MachineConfig", p.Object.Name)
			continue
		}
		for _, c := range selected {
			if len(c.Object.Labels) == 0 {
				at := c.Origin.At("metadata.labels", "selection")
				at.Next = "give it the label " + manifests.LabelRole + ", or change the selector of pool " + p.Object.Name
				bad.Errorf(at, "pool %s selects MachineConfig %s, which has no labels", p.Object.Name, c.Object.Name)
			}
		}
		out = append(out, selection{p, selected})
	}
	return out, bad.Findings
}

// matching selects and orders: role worker first, then all others, each group by name in byte order, equal names in
// reading order. An absent or empty selector matches nothing.
func matching(p *mcfgv1.MachineConfigPool, components []component) ([]component, error) {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
	if err != nil || selector.Empty() {
		return nil, err
	}
	var first, second []component
	for _, c := range components {
		switch {
		case !selector.Matches(labels.Set(c.Object.Labels)):
		case c.Object.Labels[manifests.LabelRole] == workerRole:
			first = append(first, c)
		default:
			second = append(second, c)
		}
	}
	byName := func(a, b component) int { return strings.Compare(a.Object.Name, b.Object.Name) }
	slices.SortStableFunc(first, byName)
	slices.SortStableFunc(second, byName)
	return append(first, second...), nil
}

// checkTemplates refuses a pool of an OpenShift cluster without the MachineConfigs that MCO makes of its templates: the
// result would miss most of what its nodes need, and would bear another name than MCO's. The ControllerConfig of such a
// cluster names its infrastructure.
func checkTemplates(selections []selection, controller manifests.Item[*mcfgv1.ControllerConfig]) []report.Finding {
	var out report.Report
	if controller.Object.Spec.Infra == nil {
		return nil
	}
	for _, s := range selections {
		if slices.ContainsFunc(s.components, isTemplate) {
			continue
		}
		place := s.pool.Origin.At("", "templates-missing")
		place.Next = "render a directory that has them (machine-config-controller bootstrap makes them), or say with " +
			"--components-only that these MachineConfigs are complete"
		out.Errorf(place, "pool %s selects none of the MachineConfigs that MCO makes of its templates, for example 00-%s: "+
			"the rendered config would be incomplete", s.pool.Object.Name, workerRole)
	}
	return out.Findings
}

// isTemplate says whether a component is the first that MCO makes of its templates for a role.
func isTemplate(c component) bool {
	_, generated := c.Object.Annotations[manifests.AnnotationGeneratedByController]
	return generated && c.Object.Name == "00-"+c.Object.Labels[manifests.LabelRole]
}
