package rollout_test

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

func pool(name string, selector map[string]string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if selector != nil {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: selector}
	}
	return p
}

func TestPoolFor(t *testing.T) {
	role := func(r string) map[string]string { return map[string]string{"node-role.kubernetes.io/" + r: ""} }
	pools := []*mcfgv1.MachineConfigPool{pool("infra", role("infra")), pool("master", role("master")),
		pool("worker", role("worker")), pool("gpu", role("gpu")),
		pool("all", map[string]string{}), pool("none", nil)}
	for _, c := range []struct {
		name  string
		roles []string
		want  string
		err   error
	}{
		{"worker", []string{"worker"}, "worker", nil},
		{"custom wins over worker", []string{"worker", "infra"}, "infra", nil},
		{"master wins over all", []string{"worker", "infra", "gpu", "master"}, "master", nil},
		{"two custom pools", []string{"worker", "infra", "gpu"}, "", rollout.ErrTwoPools},
		{"no role", nil, "", nil},
		{"an empty selector takes none", []string{"other"}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
			for _, r := range c.roles {
				n.Labels["node-role.kubernetes.io/"+r] = ""
			}
			got, err := rollout.NewPlacement(pools).Pool(n)
			require.ErrorIs(t, err, c.err)
			if c.want == "" {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Equal(t, c.want, got.Name)
		})
	}
}

// Which pool a node is of is not known where a selector that cannot be read may mean it.
func TestPoolForSelectorsThatCannotBeRead(t *testing.T) {
	for _, c := range []struct{ name, bad, node, fails string }{
		{"master's may mean each node", "master", "infra", "of pool master"},
		{"a custom pool's may mean a worker", "infra", "worker", "of pool infra"},
		{"and a node of another custom pool", "infra", "gpu", "of pool infra"},
		{"not a master", "infra", "master", ""},
		{"worker's may mean a node that no other pool has", "worker", "other", "of pool worker"},
		{"not one of a custom pool", "worker", "gpu", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pools []*mcfgv1.MachineConfigPool
			for _, name := range []string{"master", "worker", "infra", "gpu"} {
				p := pool(name, map[string]string{name: ""})
				if name == c.bad {
					p = unreadable(name)
				}
				pools = append(pools, p)
			}
			got, err := rollout.NewPlacement(pools).Pool(updated("n", "rendered-1", c.node))
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				assert.Nil(t, got)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.node, got.Name)
		})
	}
}

// unreadable gives a pool a selector that the API takes and nobody can read.
func unreadable(name string) *mcfgv1.MachineConfigPool {
	p := pool(name, nil)
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a",
		Operator: "Near"}}}
	return p
}

func TestPoolOf(t *testing.T) {
	p := pool("master", nil)
	p.Spec.Paused = true
	p.Annotations = map[string]string{manifests.AnnotationHaltAfter: "3",
		manifests.AnnotationMaintenanceWindows: "Mon 10:00-11:00", manifests.AnnotationRolloutWaves: "1/5m"}
	got, err := rollout.PoolOf(p)
	require.NoError(t, err)
	assert.True(t, got.Paused && got.ControlPlane)
	assert.Equal(t, 3, got.HaltAfter)
	assert.Len(t, got.Windows, 1)
	assert.Equal(t, 5*time.Minute, got.Waves.Soak)
	for _, c := range []struct {
		name  string
		value string
	}{{manifests.AnnotationHaltAfter, "0"},
		{manifests.AnnotationMaintenanceWindows, "always"}, {manifests.AnnotationRolloutWaves, "some"}} {
		p.Annotations = map[string]string{c.name: c.value}
		got, err := rollout.PoolOf(p)
		require.ErrorContains(t, err, c.name)
		assert.NotEmpty(t, got.Hold, "what cannot be read holds the pool")
	}
}

func TestNodeOf(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelTopologyZone: "z",
		manifests.LabelCanary: ""},
		Annotations: map[string]string{manifests.AnnotationCurrentConfig: "rendered-worker-1",
			manifests.AnnotationState: "Done"}}}
	got := rollout.NodeOf(n)
	assert.Equal(t, "z", got.Zone)
	assert.True(t, got.Canary)
	assert.Contains(t, got.NotReady, "not reported")
	assert.Equal(t, "rendered-worker-1", got.Record.CurrentConfig)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	assert.Empty(t, rollout.NodeOf(n).NotReady)
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure,
		Status: corev1.ConditionTrue, Reason: "Full"})
	assert.Contains(t, rollout.NodeOf(n).NotReady, "DiskPressure is True: Full")
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	assert.Contains(t, rollout.NodeOf(n).NotReady, "Ready is Unknown")
	n.Annotations[manifests.AnnotationState] = "Sleeping"
	assert.Error(t, rollout.NodeOf(n).RecordErr)
}
