package draincontroller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestHeartbeatsAreNobodysRequest(t *testing.T) {
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w0", Labels: map[string]string{"l": "1"},
		Annotations: map[string]string{"a": "1"}}}
	for _, c := range []struct {
		name   string
		change func(*corev1.Node)
		want   bool
	}{
		{"heartbeat", func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(time.Now())}}
		}, false},
		{"request", func(n *corev1.Node) { n.Annotations["a"] = "2" }, true},
		{"cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		{"control plane", func(n *corev1.Node) { n.Labels["l"] = "2" }, true},
	} {
		after := before.DeepCopy()
		c.change(after)
		assert.Equal(t, c.want, concerned().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}), c.name)
	}
	assert.True(t, concerned().Create(event.CreateEvent{Object: before}))
}
