package servecontroller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"dayone.dev/dayone/manifests"
)

func TestHeartbeatsChangeNoAnswer(t *testing.T) {
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w0", Labels: map[string]string{"role": "worker"},
		Annotations: map[string]string{manifests.AnnotationCurrentImage: "a"}}}
	for _, c := range []struct {
		name   string
		change func(*corev1.Node)
		wakes  bool
	}{
		{"heartbeat", func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(time.Now())}}
		}, false},
		{"image", func(n *corev1.Node) { n.Annotations[manifests.AnnotationCurrentImage] = "b" }, true},
		{"pool", func(n *corev1.Node) { n.Labels["role"] = "infra" }, true},
	} {
		after := before.DeepCopy()
		c.change(after)
		assert.Equal(t, c.wakes, recordChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}), c.name)
	}
	assert.True(t, recordChanged().Create(event.CreateEvent{Object: before}))
	assert.True(t, recordChanged().Delete(event.DeleteEvent{Object: before}))
}
