package manifests

import (
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsTemplate says whether MCO's program has made a MachineConfig of its templates, for a cluster's ControllerConfig.
func IsTemplate(m *mcfgv1.MachineConfig) bool {
	owner := metav1.GetControllerOf(m)
	return m.Annotations[AnnotationGeneratedByController] != "" && owner != nil && owner.Kind == "ControllerConfig"
}

// MadeByOperator says whether MCO's program has made a MachineConfig: of its templates, or of objects such as
// KubeletConfigs, which it names 97-, 98- or 99-POOL-generated-SUFFIX and of which some have no owner (MCO,
// pkg/controller/kubelet-config).
func MadeByOperator(m *mcfgv1.MachineConfig) bool {
	return m.Annotations[AnnotationGeneratedByController] != "" && !strings.HasPrefix(m.Name, "rendered-") &&
		(IsTemplate(m) || strings.Contains(m.Name, "-generated-"))
}
