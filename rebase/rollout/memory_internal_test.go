package rollout

import (
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A fleet whose nodes come and go leaves nothing behind, and one that stays is not read anew.
func TestMemoryIsBounded(t *testing.T) {
	c := &Cluster{Memory: &Memory{}, Pools: []mcfgv1.MachineConfigPool{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}}
	c.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"worker": ""}}
	c.Nodes = make([]*corev1.Node, 5)
	for round := range 20 {
		for i := range c.Nodes {
			c.Nodes[i] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), ResourceVersion: "1",
				UID: types.UID(fmt.Sprint(round, i)), Labels: map[string]string{"worker": ""}}}
		}
		c.View("worker")
		assert.LessOrEqual(t, len(c.Memory.known), 3*len(c.Nodes))
	}
	before := c.Memory.known[c.Nodes[0].UID]
	c.View("worker")
	assert.Same(t, before, c.Memory.known[c.Nodes[0].UID])
}
