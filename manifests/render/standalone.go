package render

import (
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
)

// ControllerConfigName is the name of the one ControllerConfig (MCO).
const ControllerConfigName = "machine-config-controller"

// StandaloneInputs adds what a cluster without MCO's operator lacks and what rendering demands: a ControllerConfig that
// names the base image and was made by these versions, and a FeatureGate whose status lists the payload version. What
// the set already has is kept. The bootstrap host and the in-cluster renderer both call it, so both render the same.
func StandaloneInputs(set *manifests.Set, baseImage string, versions Versions) {
	if len(set.ControllerConfigs) == 0 {
		set.ControllerConfigs = append(set.ControllerConfigs, manifests.NewItem(&mcfgv1.ControllerConfig{
			TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "ControllerConfig"},
			ObjectMeta: metav1.ObjectMeta{
				Name:        ControllerConfigName,
				Annotations: map[string]string{manifests.AnnotationGeneratedByVersion: versions.Raw},
			},
			Spec: mcfgv1.ControllerConfigSpec{BaseOSContainerImage: baseImage},
		}))
	}
	for _, g := range set.FeatureGates {
		if g.Object.Name == featureGateName {
			return
		}
	}
	set.FeatureGates = append(set.FeatureGates, manifests.NewItem(&configv1.FeatureGate{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "FeatureGate"},
		ObjectMeta: metav1.ObjectMeta{Name: featureGateName},
		Status:     configv1.FeatureGateStatus{FeatureGates: []configv1.FeatureGateDetails{{Version: versions.Payload}}},
	}))
}
