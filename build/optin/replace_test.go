package optin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// formerBuilder is a Deployment of the name that earlier versions gave to theirs, which is also the Machine Config
// Operator's.
func formerBuilder(labels map[string]string) *appsv1.Deployment {
	app := map[string]string{"app.kubernetes.io/name": cluster.FormerBuilder}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster.FormerBuilder, Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "r.test/b:0"}}}}}}
}

func formerLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: cluster.FormerBuilder}}
}

// The builder of an earlier version has another lease: both would work at once if it did not end first.
func TestABuilderOfAnEarlierVersionEndsFirst(t *testing.T) {
	w := newWorld(t)
	w.stop()
	former := formerBuilder(map[string]string{cluster.LabelManagedBy: cluster.ManagedBy})
	w.create(former, formerLease(), secret(ns, "push", "p"), pool("worker"), machineOSConfig("worker", "worker"))
	// Its pod takes its time: what it is doing has to end.
	const busy = "dayone.test/busy"
	hold := func(finalizers ...string) {
		w.eventually(func(c *assert.CollectT) {
			var pods corev1.PodList
			assert.NoError(c, w.Client.List(context.Background(), &pods, client.InNamespace(ns),
				client.MatchingLabels{"app.kubernetes.io/name": cluster.FormerBuilder}))
			assert.Len(c, pods.Items, 1)
			for i := range pods.Items {
				pods.Items[i].Finalizers = finalizers
				assert.NoError(c, w.Client.Update(context.Background(), &pods.Items[i]))
			}
		})
	}
	hold(busy)
	w.start()
	w.builderIs(phaseReplacing, "starts when Deployment "+ns+"/"+cluster.FormerBuilder+", which an earlier version made")
	w.eventually(func(c *assert.CollectT) {
		var d appsv1.Deployment
		w.get(c, &d, ns, cluster.FormerBuilder)
		assert.NotNil(c, d.DeletionTimestamp)
	})
	w.optedIn("worker", reasonOptedIn)
	builder := types.NamespacedName{Namespace: ns, Name: cluster.Builder}
	require.True(t, apierrors.IsNotFound(w.Client.Get(t.Context(), builder, &appsv1.Deployment{})), "two at once")

	hold()
	w.builderIs(phaseStarting, "1 of 1")
	w.absent(former, ns, cluster.FormerBuilder)
	w.absent(formerLease(), ns, cluster.FormerBuilder)
	require.NoError(t, w.Client.Get(t.Context(), builder, &appsv1.Deployment{}))
}

func TestTheMachineConfigOperatorsBuilderIsUntouched(t *testing.T) {
	w := newWorld(t)
	theirs := formerBuilder(nil)
	theirs.Spec.Replicas = new(int32)
	w.create(theirs, formerLease(), secret(ns, "push", "p"), pool("worker"), machineOSConfig("worker", "worker"))
	w.podsRun()
	w.builderIs(phaseRunning, "1 of 1")
	w.delete(machineOSConfig("worker", "worker"))
	w.podsEnd()
	w.builderIs(phaseIdle, "0 of 0")
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	assert.Nil(t, theirs.DeletionTimestamp)
	lease := formerLease()
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	w.delete(lease)
}
