package rollout_test

import (
	"fmt"
	"strings"
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

// updated makes a ready node of a pool with what the pool had before, under labels.
func updated(name, config string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{},
		Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
			manifests.AnnotationState: "Done"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for _, l := range labels {
		n.Labels[l] = ""
	}
	return n
}

// A selector that cannot be read stops the pools whose nodes it may mean, and is that one pool's fault.
func TestASelectorThatCannotBeReadHoldsWhatItMayMean(t *testing.T) {
	good := func(name string) *mcfgv1.MachineConfigPool { return pool(name, map[string]string{name: ""}) }
	for _, c := range []struct {
		name string
		bad  string
		held []string
	}{
		{"of the control plane", "master", []string{"gpu", "infra", "master", "worker"}},
		{"of a custom pool", "infra", []string{"gpu", "infra", "worker"}},
		{"of the workers", "worker", []string{"worker"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := rollout.Cluster{Nodes: []*corev1.Node{updated("g", "rendered-gpu-1", "gpu", "worker"),
				updated("i", "rendered-infra-1", "infra", "worker"),
				updated("m", "rendered-master-1", "master"), updated("w", "rendered-worker-1", "worker")}}
			names := []string{"gpu", "infra", "master", "worker"}
			for _, name := range names {
				p := good(name)
				if name == c.bad {
					p = unreadable(name)
				}
				p.Spec.Configuration.Name = "rendered-" + name + "-1"
				cluster.Pools = append(cluster.Pools, *p)
			}
			var held []string
			for _, name := range names {
				look := cluster.View(name)
				require.NotNil(t, look)
				plan := look.Plan(time.Now())
				if look.Doubt == "" {
					assert.True(t, look.Done(plan), name)
					assert.Empty(t, plan.Stopped, name)
					assert.Equal(t, 1, plan.Counts.Nodes, name)
				} else {
					held = append(held, name)
					assert.False(t, look.Done(plan), name)
					assert.Contains(t, plan.Stopped, "read node selector of pool "+c.bad, name)
				}
				if name == c.bad {
					assert.Len(t, look.Faults, 1, "once, however many nodes there are")
				} else {
					assert.Empty(t, look.Faults, name)
				}
			}
			assert.Equal(t, c.held, held)
		})
	}
}

// What is said of nodes goes into an object, which has room for some of them.
func TestThousandsOfNodesInTwoPoolsAreToldShortly(t *testing.T) {
	const nodes = 5000
	c := rollout.Cluster{}
	for _, name := range []string{"infra", "gpu", "worker"} {
		c.Pools = append(c.Pools, *pool(name, map[string]string{name: ""}))
	}
	for i := range nodes {
		c.Nodes = append(c.Nodes, updated(fmt.Sprintf("n%04d", nodes-1-i), "rendered-gpu-1", "infra", "gpu"))
	}
	for _, name := range []string{"infra", "worker"} {
		faults := c.View(name).Faults
		text := strings.Join(faults, "; ")
		assert.Less(t, len(text), 2000)
		assert.Contains(t, faults[0], "place node n0000: more than one custom pool selects the node: gpu, infra")
		assert.Contains(t, text, "and 4995 more nodes")
	}
	c.Nodes = c.Nodes[:5]
	assert.NotContains(t, strings.Join(c.View("infra").Faults, "; "), "more nodes")
}
