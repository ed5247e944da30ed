package rendercontroller

import (
	"context"
	"errors"
	"fmt"
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

var errKilled = errors.New("killed")

// dying makes a controller whose process dies at a certain write, which has reached the API server or has not; 0: it
// lives.
func (w *world) dying(at int, after bool) *reconciler {
	w.t.Helper()
	under, err := client.NewWithWatch(w.As(w.t, cluster.DefaultNamespace, cluster.Controller),
		client.Options{Scheme: w.Scheme})
	require.NoError(w.t, err)
	writes := 0
	write := func(do func() error) error {
		writes++
		if at > 0 && (writes > at || writes == at && !after) {
			return errKilled
		}
		err := do()
		if writes == at {
			return errKilled
		}
		return err
	}
	c := interceptor.NewClient(under, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	return &reconciler{client: c, live: c, o: Options{Versions: versions, Keep: -1}.withDefaults(),
		shown: newShown(events.NewFakeRecorder(1000)),
		known: func(client.Object) bool { return true }}
}

// TestRenderingAfterAKill kills it before and after each write of several renderings, and
// restarts the API server on the way: the pool follows its MachineConfigs, never points at what is not there, and
// nothing of a dead process stays.
func TestRenderingAfterAKill(t *testing.T) {
	w := newWorld(t, 0)
	w.stop()
	mc := machineConfig("50-a", "black", "round=0")
	w.create(mc, newPool("black"))
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: "black"}}
	last := ""
	for round := range 5 {
		mc.Spec.KernelArguments = []string{fmt.Sprintf("round=%d", round)}
		require.NoError(t, w.Client.Update(t.Context(), mc))
		for at := 1; at <= 4; at++ {
			for _, after := range []bool{false, true} {
				if _, err := w.dying(at, after).Reconcile(t.Context(), request); err != nil {
					require.ErrorIs(t, err, errKilled)
				}
				if name := w.pool(t, "black").Spec.Configuration.Name; name != "" {
					require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: name}, &mcfgv1.MachineConfig{}),
						"what the pool points at is there")
				}
			}
		}
		if round == 2 {
			w.RestartAPIServer(t)
		}
		_, err := w.dying(0, false).Reconcile(t.Context(), request)
		require.NoError(t, err)
		name := w.pool(t, "black").Spec.Configuration.Name
		assert.NotEqual(t, last, name)
		last = name
		w.condition("black", corev1.ConditionFalse, "")
		assert.ElementsMatch(t, []string{name}, w.renderedConfigs(t), "nobody refers to the former ones")
		still := w.pool(t, "black").ResourceVersion
		_, err = w.dying(1, false).Reconcile(t.Context(), request)
		require.NoError(t, err, "nothing is left to write")
		assert.Equal(t, still, w.pool(t, "black").ResourceVersion)
	}
}
