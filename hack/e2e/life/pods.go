package life

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/e2e/fleet"
)

// podOf is what has to leave a node before it reboots. It is an object of the API alone: the node's kubelet is played,
// and nothing runs it.
func podOf(h *fleet.Host) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "app-" + h.Name},
		Spec: corev1.PodSpec{NodeName: h.Name, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app:1"}}}}
}

// placePods puts a pod onto every node of a pool that has none.
func placePods(ctx context.Context, l *life, pool string) error {
	for _, h := range l.fleet.Of(pool) {
		if err := l.client.Create(ctx, podOf(h)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("place a pod on %s: %w", h.Name, err)
		}
	}
	return nil
}

// checkPod looks whether a node's pod was evicted, or is still there.
func checkPod(ctx context.Context, l *life, h *fleet.Host, evicted bool) {
	err := l.client.Get(ctx, client.ObjectKeyFromObject(podOf(h)), &corev1.Pod{})
	if evicted {
		l.check(h.Node.Name, "its pod was drained", apierrors.IsNotFound(err), "")
		return
	}
	l.check(h.Node.Name, "its pod is left alone", err == nil, "")
}
