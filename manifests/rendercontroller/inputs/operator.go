package inputs

import (
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// HeldError says why pools keep the configs that they have: what they are rendered from is being written.
type HeldError struct{ Text string }

// Error is the text.
func (e HeldError) Error() string { return e.Text }

// options tell how a set is rendered. Where a Machine Config Operator has made the cluster's ControllerConfig and
// MachineConfigs, this renderer counts as that operator's: names and annotations stay, and its MachineConfigs are
// complete, so none is generated here.
func (g Gatherer) options(set *manifests.Set) (render.Options, error) {
	o := render.Options{Versions: g.Versions, ComponentsOnly: g.ComponentsOnly}
	var controller *mcfgv1.ControllerConfig
	for _, item := range set.ControllerConfigs {
		_, standalone := item.Object.Annotations[manifests.AnnotationStandalone]
		if item.Object.Name == render.ControllerConfigName && !standalone {
			controller = item.Object
		}
	}
	if controller == nil {
		return o, nil
	}
	release := controller.Annotations[manifests.AnnotationRelease]
	for _, item := range set.MachineConfigs {
		m := item.Object
		if !manifests.MadeByOperator(m) {
			continue
		}
		if is := m.Annotations[manifests.AnnotationRelease]; is != release {
			return o, HeldError{fmt.Sprintf("MachineConfig %s was made for %q, the ControllerConfig for %q", m.Name, is,
				release)}
		}
		if manifests.IsTemplate(m) {
			o.ComponentsOnly = true
			o.Versions = render.Versions{Hash: m.Annotations[manifests.AnnotationGeneratedByController],
				Raw:     controller.Annotations[manifests.AnnotationGeneratedByVersion],
				Payload: controller.Annotations[manifests.AnnotationReleaseImageVersion]}
		}
	}
	return o, nil
}
