package nodecontroller_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/target"
)

var errKilled = errors.New("killed")

// mortal is a client whose process dies before or after a certain write; it counts the writes on nodes and their
// records.
type mortal struct {
	writes, dieAt int
	// after: the write that it dies at has reached the API server.
	after   bool
	perNode map[string]int
}

func (m *mortal) write(o client.Object, do func() error) error {
	m.writes++
	if m.dieAt > 0 && m.writes >= m.dieAt && (!m.after || m.writes > m.dieAt) {
		return errKilled
	}
	err := do()
	if err == nil {
		m.perNode[o.GetName()]++
	}
	if m.dieAt > 0 && m.writes == m.dieAt {
		return errKilled
	}
	return err
}

func (m *mortal) client(f *fixture) client.Client {
	under, err := client.NewWithWatch(f.env.As(f, "openshift-machine-config-operator", "dayone-controller"),
		client.Options{Scheme: f.env.Scheme})
	require.NoError(f, err)
	return interceptor.NewClient(under, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.write(o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return m.write(o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return m.write(o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// TestARolloutSurvivesTheControllersDeathAtEveryWrite kills the controller before and after each of its writes, lets
// its clock jump, and restarts the API server on the way: never are more nodes on their way than allowed, and all
// arrive.
func TestARolloutSurvivesTheControllersDeathAtEveryWrite(t *testing.T) {
	clock := time.Now()
	f := newFixture(t, nodecontroller.Options{Now: func() time.Time { return clock }})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	names := []string{"a", "b", "c", "d", "e"}
	for _, n := range names {
		f.node(n, target.Target{Config: first})
	}
	f.look()
	two := intstr.FromInt32(2)
	f.render(second, func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = &two })
	m := &mortal{perNode: map[string]int{}}
	dying := m.client(f)
	moving := func() (out []string) {
		for _, n := range names {
			if !f.record(n).Converged() {
				out = append(out, n)
			}
		}
		return out
	}
	jumps := []time.Duration{-48 * time.Hour, 100 * time.Hour, -time.Minute}
	for round := 0; round < 60; round++ {
		m.writes, m.dieAt, m.after = 0, 1+round/2%4, round%2 == 1
		clock = clock.Add(jumps[round%len(jumps)])
		if round == 7 {
			f.env.RestartAPIServer(t)
		}
		// A new process each time: it knows nothing of the former one.
		_, err := nodecontroller.New(dying, f.ev, f.o).
			Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: f.pool}})
		if err != nil {
			require.ErrorContains(t, err, errKilled.Error())
		}
		on := moving()
		assert.LessOrEqual(t, len(on), 2, "round %d: %v", round, on)
		if len(on) > 0 && round%3 == 0 {
			f.agent(on[0], arrive)
		}
		if len(on) == 0 && round > 20 {
			break
		}
	}
	m.dieAt = 0
	f.look()
	for _, n := range names {
		assert.Equal(t, second, f.record(n).CurrentConfig, n)
		// One write of the node, one of its taint and one of its record, and no more by the deaths: a write that arrived is
		// not done again.
		assert.LessOrEqual(t, m.perNode[f.name(n)], 3, n)
	}
	assert.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
}

func TestAPoolWhoseNodesAreNotKnownIsNotUpdated(t *testing.T) {
	f := newFixture(t, nodecontroller.Options{})
	first, second := "rendered-"+f.pool+"-1", "rendered-"+f.pool+"-2"
	f.node("a", target.Target{Config: first})
	f.look()
	require.Equal(t, corev1.ConditionTrue, f.condition(mcfgv1.MachineConfigPoolUpdated).Status)
	selector := f.object().Spec.NodeSelector
	f.render(second, func(p *mcfgv1.MachineConfigPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a",
			Operator: "Near"}}}
	})
	f.look()
	is := f.condition(mcfgv1.MachineConfigPoolUpdated)
	assert.Equal(t, corev1.ConditionFalse, is.Status)
	assert.Equal(t, "NodesUnknown", is.Reason)
	assert.Equal(t, first, f.object().Status.Configuration.Name, "nobody knows what has the new one")
	assert.Equal(t, int32(1), f.object().Status.MachineCount, "the last that was known")
	assert.Contains(t, f.condition(mcfgv1.MachineConfigPoolDegraded).Message, "Near")
	assert.Equal(t, first, f.record("a").DesiredConfig)
	f.render(second, func(p *mcfgv1.MachineConfigPool) { p.Spec.NodeSelector = selector })
	f.look()
	assert.Equal(t, second, f.record("a").DesiredConfig)
	assert.Equal(t, corev1.ConditionFalse, f.condition(mcfgv1.MachineConfigPoolDegraded).Status)
}
