package draincontroller_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodestate"
)

var errKilled = errors.New("killed")

// dying makes a controller whose process dies at a certain write, which has reached the API server or has not.
func (f *fixture) dying(at int, after bool) *draincontroller.Reconciler {
	f.Helper()
	cfg := f.env.As(f.T, cluster.DefaultNamespace, cluster.Controller)
	pods, err := kubernetes.NewForConfig(cfg)
	require.NoError(f, err)
	under, err := client.NewWithWatch(cfg, client.Options{Scheme: f.env.Scheme})
	require.NoError(f, err)
	writes := 0
	write := func(do func() error) error {
		if writes++; writes > at || writes == at && !after {
			return errKilled
		}
		err := do()
		if writes == at {
			return errKilled
		}
		return err
	}
	c := interceptor.NewClient(under, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	return draincontroller.New(c, pods, f.ev, draincontroller.Options{Now: func() time.Time { return f.now }})
}

// TestADrainSurvivesTheControllersDeathAtEveryWrite kills the controller before and after each of its writes: at the
// end the node was drained and uncordoned, its records say so, and somebody else's cordon is told from its own.
func TestADrainSurvivesTheControllersDeathAtEveryWrite(t *testing.T) {
	f := newFixture(t, nil)
	f.pod("a", nil)
	began := ""
	for _, verb := range []string{nodestate.Drain, nodestate.Uncordon} {
		f.ask(verb)
		for round := 0; !f.answered(); round++ {
			require.Less(t, round, 30, verb)
			f.now = f.now.Add(time.Minute)
			if _, err := f.dying(1+round/2%3, round%2 == 1).Reconcile(t.Context(), f.request()); err != nil {
				require.ErrorIs(t, err, errKilled)
			}
			if started, found := f.object().Annotations[manifests.AnnotationDrainStarted]; found {
				began = cmp.Or(began, started)
				assert.Equal(t, began, started, "its time counts from its start")
			}
			assert.Equal(t, !f.object().Spec.Unschedulable, f.object().Annotations[manifests.AnnotationCordonedBy] == "",
				"cordoned and noted at once")
		}
		_, err := f.look()
		require.NoError(t, err)
	}
	assert.False(t, f.object().Spec.Unschedulable)
	assert.NotContains(t, f.object().Annotations, manifests.AnnotationCordonedBy)
	assert.NotContains(t, f.object().Annotations, manifests.AnnotationDrainStarted)
}

// TestTheConditionsAreThereWhereverTheControllerDies kills it before and after each write of a drain and of an
// uncordon: the next one makes sure of what it had no time to say, and the one after it has nothing to write.
func TestTheConditionsAreThereWhereverTheControllerDies(t *testing.T) {
	f := newFixture(t, nil)
	want := map[string]map[string]metav1.ConditionStatus{
		nodestate.Drain: {"Cordoned": metav1.ConditionTrue, "Drained": metav1.ConditionTrue,
			"Uncordoned": metav1.ConditionFalse},
		nodestate.Uncordon: {"Cordoned": metav1.ConditionFalse, "Drained": metav1.ConditionFalse,
			"Uncordoned": metav1.ConditionTrue},
	}
	for at := 1; at <= 4; at++ {
		for _, after := range []bool{false, true} {
			for _, verb := range []string{nodestate.Drain, nodestate.Uncordon} {
				f.ask(verb)
				if _, err := f.dying(at, after).Reconcile(t.Context(), f.request()); err != nil {
					require.ErrorIs(t, err, errKilled)
				}
				var before mcfgv1.MachineConfigNode
				for range 2 {
					f.restart()
					_, err := f.look()
					require.NoError(t, err)
					for name, status := range want[verb] {
						assert.Equal(t, status, f.condition(name).Status, "%s %d %t: %s", verb, at, after, name)
					}
					version := before.ResourceVersion
					require.NoError(t, f.env.Client.Get(t.Context(), client.ObjectKey{Name: f.node}, &before))
					assert.True(t, version == "" || version == before.ResourceVersion, "nothing is new")
				}
				assert.True(t, f.answered())
			}
		}
	}
}

func TestTheNextDrainHasATimeOfItsOwn(t *testing.T) {
	f := newFixture(t, nil)
	f.ask(nodestate.Drain)
	_, err := f.look()
	require.NoError(t, err)
	require.True(t, f.answered())
	// The update fails; hours later a corrected one begins with a drain, the node still being cordoned.
	f.now = f.now.Add(3 * draincontroller.Limit)
	f.budget()
	f.pod("kept", map[string]string{"keep": "me"})
	f.askFor(nodestate.Drain, "rendered-worker-3")
	_, err = f.look()
	require.NoError(t, err)
	assert.Equal(t, "Draining", f.condition("Drained").Reason, "it has just begun")
	f.askFor(nodestate.Uncordon, "rendered-worker-3")
	_, err = f.look()
	require.NoError(t, err)
	assert.False(t, f.object().Spec.Unschedulable, "the cordon is ours all along")
}

func TestWhoUncordonsInTheMiddleFindsTheNodeUncordonedAtTheEnd(t *testing.T) {
	f := newFixture(t, nil)
	f.set(true)
	b := f.budget()
	f.pod("kept", map[string]string{"keep": "me"})
	f.ask(nodestate.Drain)
	_, err := f.look()
	require.NoError(t, err)
	f.set(false)
	_, err = f.look()
	require.NoError(t, err)
	assert.True(t, f.object().Spec.Unschedulable, "a drain needs the cordon")
	require.NoError(t, f.env.Client.Delete(t.Context(), b))
	for range 3 {
		_, err = f.look()
		require.NoError(t, err)
	}
	require.True(t, f.answered())
	f.ask(nodestate.Uncordon)
	_, err = f.look()
	require.NoError(t, err)
	assert.False(t, f.object().Spec.Unschedulable,
		"the cordon that was there first is gone by its owner's wish; this one is ours")
}

// The agent cannot pull, somebody uncordons the node meanwhile, and pods come: the reboot that follows once it can must
// not take them by surprise.
func TestWhoUncordonsAfterTheDrainFindsTheNodeDrainedAgain(t *testing.T) {
	f := newFixture(t, nil)
	f.pod("before", nil)
	f.ask(nodestate.Drain)
	for range 3 {
		_, err := f.look()
		require.NoError(t, err)
	}
	require.True(t, f.answered())
	b := f.budget()
	f.change(func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Annotations[manifests.AnnotationState] = false, "Degraded"
	})
	f.pod("kept", map[string]string{"keep": "me"})
	f.now = f.now.Add(3 * draincontroller.Limit)
	_, err := f.look()
	require.NoError(t, err)
	assert.False(t, f.answered(), "the agent waits")
	assert.True(t, f.object().Spec.Unschedulable)
	assert.Equal(t, "Draining", f.condition("Drained").Reason, "it has a time of its own")
	require.NoError(t, f.env.Client.Delete(t.Context(), b))
	for range 3 {
		_, err = f.look()
		require.NoError(t, err)
	}
	assert.True(t, f.answered())
	var pods corev1.PodList
	require.NoError(t, f.env.Client.List(t.Context(), &pods, client.InNamespace(f.node)))
	assert.Empty(t, pods.Items)

	f.ask(nodestate.Uncordon)
	for range 2 {
		_, err = f.look()
		require.NoError(t, err)
		assert.True(t, f.answered())
		assert.False(t, f.object().Spec.Unschedulable, "our own uncordon is none of that")
	}
}

func TestANodeThatWillNotRebootIsNotDrainedAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		change map[string]string
	}{
		{"done", map[string]string{manifests.AnnotationState: "Done",
			manifests.AnnotationCurrentConfig: "rendered-worker-2"}},
		{"impossible", map[string]string{manifests.AnnotationState: "Unreconcilable"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, nil)
			f.ask(nodestate.Drain)
			_, err := f.look()
			require.NoError(t, err)
			f.change(func(n *corev1.Node) {
				n.Spec.Unschedulable = false
				maps.Copy(n.Annotations, c.change)
			})
			_, err = f.look()
			require.NoError(t, err)
			assert.False(t, f.object().Spec.Unschedulable)
		})
	}
}

func TestAReportIsNotLostToAnothersChange(t *testing.T) {
	f := newFixture(t, nil)
	cfg := f.env.As(t, cluster.DefaultNamespace, cluster.Controller)
	pods, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	under, err := client.NewWithWatch(cfg, client.Options{Scheme: f.env.Scheme})
	require.NoError(t, err)
	c := interceptor.NewClient(under, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			// Somebody else is faster each time, once.
			if record, ok := o.(*mcfgv1.MachineConfigNode); ok && record.Annotations["faster"] == "" {
				other := &mcfgv1.MachineConfigNode{}
				other.Name = o.GetName()
				if err := f.env.Client.Patch(ctx, other, client.RawPatch("application/merge-patch+json",
					[]byte(`{"metadata":{"annotations":{"faster":"yes"}}}`))); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	f.r = draincontroller.New(c, pods, f.ev, draincontroller.Options{Now: func() time.Time { return f.now }})
	f.ask(nodestate.Drain)
	_, err = f.look()
	require.NoError(t, err)
	require.True(t, f.answered())
	assert.Equal(t, "Drained", f.condition("Drained").Reason)
	assert.Equal(t, "Cordoned", f.condition("Cordoned").Reason)
}
