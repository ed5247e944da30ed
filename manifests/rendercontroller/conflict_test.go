package rendercontroller

import (
	"context"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// TestConflictIsNoFailure lets somebody change the pool right before the controller does, in its spec and in
// its status: the API server refuses the write, and the controller looks again without a complaint.
func TestConflictIsNoFailure(t *testing.T) {
	w := newWorld(t, 0)
	w.stop()
	w.create(machineConfig("50-a", "black", "quiet"), newPool("black"))
	under, err := client.NewWithWatch(w.As(t, cluster.DefaultNamespace, cluster.Controller),
		client.Options{Scheme: w.Scheme})
	require.NoError(t, err)
	disturbed := map[string]bool{}
	disturb := func(what string, o client.Object) {
		if _, pool := o.(*mcfgv1.MachineConfigPool); pool && !disturbed[what] {
			disturbed[what] = true
			p := w.pool(t, "black")
			p.Labels = map[string]string{"disturbed": what}
			require.NoError(t, w.Client.Update(t.Context(), p))
		}
	}
	c := interceptor.NewClient(under, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			disturb("spec", o)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			disturb(sub, o)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r := &reconciler{client: c, live: c, o: Options{Versions: versions}.withDefaults(),
		shown: newShown(events.NewFakeRecorder(1000)),
		known: func(client.Object) bool { return true }}
	looks := 0
	for again := true; again; looks++ {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "black"}})
		require.NoError(t, err)
		again = result.RequeueAfter > 0
	}
	assert.Equal(t, map[string]bool{"spec": true, "status": true}, disturbed)
	assert.Equal(t, 3, looks)
	assert.NotEmpty(t, w.pool(t, "black").Spec.Configuration.Name)
	w.condition("black", corev1.ConditionFalse, "")
}
