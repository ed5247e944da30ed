package rollout_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/hack/testnode/clock/clocktest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// The controller's own wall clock is set in the middle of a wave's watch, which goes on as if nothing was.
func TestAWaveIsWatchedWhileTheClockIsSet(t *testing.T) {
	p := pool("worker", map[string]string{"w": ""})
	p.Annotations = map[string]string{manifests.AnnotationRolloutWaves: "1 / 15m"}
	p.Spec.Configuration.Name = "rendered-worker-2"
	began := time.Now()
	c := rollout.Cluster{Pools: []mcfgv1.MachineConfigPool{*p},
		Records: []*mcfgv1.MachineConfigNode{{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: mcfgv1.MachineConfigNodeStatus{Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineConfigNodeUpdated),
				Status:             metav1.ConditionTrue,
				LastTransitionTime: metav1.Time{Time: began.Add(-time.Minute).Round(0)}}}}}}}
	c.Nodes = []*corev1.Node{updated("a", "rendered-worker-2", "w"), updated("b", "rendered-worker-1", "w")}
	for _, tc := range []struct {
		name string
		by   time.Duration
	}{{"ahead", 3 * time.Hour}, {"back", -3 * time.Hour}, {"not at all", 0}} {
		t.Run(tc.name, func(t *testing.T) {
			var a rollout.Arrivals
			plan := func(after, by time.Duration) rollout.Plan {
				look, now := c.View("worker"), clocktest.Set(t, began.Add(after), by)
				require.NotNil(t, look)
				a.Settle(look, now)
				return look.Plan(now)
			}
			assert.Equal(t, 14*time.Minute, plan(0, 0).RecheckAfter, "it was there a minute before it was seen")
			for _, left := range []time.Duration{12 * time.Minute, time.Second} {
				p := plan(14*time.Minute-left, tc.by)
				assert.Empty(t, p.Next)
				assert.Equal(t, left, p.RecheckAfter)
			}
			assert.Equal(t, []string{"b"}, plan(14*time.Minute, tc.by).Next)
		})
	}
}

// A node is watched from the moment when its agent is done, not while it still works at what it has.
func TestAWaveIsWatchedWhenTheAgentIsDone(t *testing.T) {
	p := pool("worker", map[string]string{"w": ""})
	p.Annotations = map[string]string{manifests.AnnotationRolloutWaves: "1 / 15m"}
	p.Spec.Configuration.Name = "rendered-worker-2"
	c := rollout.Cluster{Pools: []mcfgv1.MachineConfigPool{*p},
		Nodes: []*corev1.Node{updated("a", "rendered-worker-2", "w"), updated("b", "rendered-worker-1", "w")}}
	var a rollout.Arrivals
	plan := func(state string, now time.Time) rollout.Plan {
		c.Nodes[0].Annotations[manifests.AnnotationState] = state
		look := c.View("worker")
		a.Settle(look, now)
		return look.Plan(now)
	}
	plan("Working", now)
	assert.Equal(t, 15*time.Minute, plan("Done", now.Add(10*time.Minute)).RecheckAfter)
	assert.Equal(t, 5*time.Minute, plan("Done", now.Add(20*time.Minute)).RecheckAfter)
}
