package disruptioncontroller

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"dayone.dev/dayone/manifests"
)

func TestWhatOthersSayOfAPoolDoesNotWakeItsPlan(t *testing.T) {
	known := mcfgv1.MachineConfigPoolCondition{Type: ConditionEffectKnown, Status: corev1.ConditionTrue, Reason: "Reboot"}
	for _, c := range []struct {
		name   string
		change func(*mcfgv1.MachineConfigPool)
		wakes  bool
	}{
		{"nothing", func(*mcfgv1.MachineConfigPool) {}, false},
		{"counts", func(p *mcfgv1.MachineConfigPool) { p.Status.UpdatedMachineCount = 7 }, false},
		{"another condition", func(p *mcfgv1.MachineConfigPool) {
			p.Status.Conditions = append(p.Status.Conditions,
				mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolUpdating, Status: corev1.ConditionTrue})
		}, false},
		{"its spec", func(p *mcfgv1.MachineConfigPool) { p.Generation = 2 }, true},
		{"the published plan", func(
			p *mcfgv1.MachineConfigPool) {
			p.Annotations = map[string]string{manifests.AnnotationPlan: "{}"}
		}, true},
		{"a label", func(p *mcfgv1.MachineConfigPool) { p.Labels = map[string]string{"a": "b"} }, true},
		{"its condition is gone", func(p *mcfgv1.MachineConfigPool) { p.Status.Conditions = nil }, true},
		{"its condition is others", func(
			p *mcfgv1.MachineConfigPool) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1},
				Status: mcfgv1.MachineConfigPoolStatus{Conditions: []mcfgv1.MachineConfigPoolCondition{known}}}
			changed := p.DeepCopy()
			c.change(changed)
			assert.Equal(t, c.wakes, poolChanged().Update(event.UpdateEvent{ObjectOld: p, ObjectNew: changed}))
		})
	}
}
