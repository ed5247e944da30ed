package rollout_test

import (
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/rollout"
)

// fleetOf is a cluster of one layered pool whose nodes go to another config and image, as the API server gives it.
func fleetOf(nodes int) *rollout.Cluster {
	tenth := intstr.FromString("10%")
	pool := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.MaxUnavailable, pool.Spec.Configuration.Name = &tenth, "rendered-worker-2"
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	c := &rollout.Cluster{Pools: []mcfgv1.MachineConfigPool{pool}, Memory: &rollout.Memory{}}
	image := "r.example.com/os/worker@sha256:" + fmt.Sprintf("%064d", 1)
	for i := range nodes {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i), UID: types.UID(fmt.Sprint(i)),
			ResourceVersion: "1", Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
			Annotations: map[string]string{manifests.AnnotationState: "Done",
				manifests.AnnotationCurrentConfig: "rendered-worker-1", manifests.AnnotationDesiredConfig: "rendered-worker-1",
				manifests.AnnotationCurrentImage: image, manifests.AnnotationDesiredImage: image,
				manifests.AnnotationDesiredOSImage: image}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		c.Nodes = append(c.Nodes, &n)
		c.Records = append(c.Records, &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})
	}
	return c
}

func TestMemoryKeepsNothingThatHasChanged(t *testing.T) {
	c := fleetOf(3)
	state := func() rollout.Node { return c.View("worker").Nodes[1] }
	before := state()
	c.Nodes[1].Annotations = map[string]string{manifests.AnnotationState: "Degraded"}
	c.Nodes[1].Spec.Unschedulable = true
	c.Nodes[1].ResourceVersion = "2"
	after := state()
	assert.NotEqual(t, before, after)
	assert.True(t, after.Cordoned)
	without := *c
	without.Memory = nil
	assert.Equal(t, without.View("worker").Nodes, c.View("worker").Nodes)
	c.Nodes[1].UID, c.Nodes[1].Spec.Unschedulable = "another", false
	assert.False(t, state().Cordoned, "a node of the same name is another one")
}

// What has not changed is not read again: the API gives each change a version.
func TestMemoryKeepsWhatIsTheSame(t *testing.T) {
	c := fleetOf(2)
	changed := func() (node bool, seconds int64) {
		return c.View("worker").Nodes[0].Cordoned, c.View("worker").History("node-0000").Times.Seconds["Reboot"]
	}
	changed()
	c.Nodes[0].Spec.Unschedulable = true
	c.Nodes[0].Annotations[manifests.AnnotationUpdateTimes] = `{"seconds":{"Reboot":7}}`
	cordoned, seconds := changed()
	assert.False(t, cordoned)
	assert.Zero(t, seconds)
	for name, change := range map[string]func(){
		"another version": func() { c.Nodes[0].ResourceVersion = "2" },
		"a node of a dump, without a version": func() {
			c.Nodes[0].ResourceVersion = ""
			c.View("worker")
		},
		"nothing is kept": func() { c.Memory = nil },
	} {
		change()
		cordoned, seconds := changed()
		assert.True(t, cordoned, name)
		assert.Equal(t, int64(7), seconds, name)
	}
}

// BenchmarkLook5000 is one decision from the objects in memory, of which a few have changed since the last one.
func BenchmarkLook5000(b *testing.B) {
	c := fleetOf(5000)
	c.View("worker")
	for i := 0; b.Loop(); i++ {
		for k := range 10 {
			c.Nodes[(i*10+k)%len(c.Nodes)].ResourceVersion = fmt.Sprint(i + 2)
		}
		if len(c.View("worker").Plan(now).Next) != 500 {
			b.Fatal("not as many as may go")
		}
	}
}

// BenchmarkFirstLook5000 is the same of a controller that has just started.
func BenchmarkFirstLook5000(b *testing.B) {
	c := fleetOf(5000)
	for b.Loop() {
		c.Memory = &rollout.Memory{}
		c.View("worker").Plan(now)
	}
}
