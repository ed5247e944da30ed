package rendercontroller

import (
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
)

// renderedConfigs are the names of all rendered configs that are there.
func (w *world) renderedConfigs(c require.TestingT) []string {
	var list mcfgv1.MachineConfigList
	require.NoError(c, w.Client.List(w.t.Context(), &list))
	var have []string
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "rendered-") {
			have = append(have, list.Items[i].Name)
		}
	}
	return have
}

func (w *world) left(want ...string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) { assert.ElementsMatch(c, want, w.renderedConfigs(c)) },
		waitLimit, waitEvery)
}

func buildOf(name, config string, labels map[string]string) *mcfgv1.MachineOSBuild {
	return &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:   mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "red"}, RenderedImagePushSpec: "r.example.com/os/red:x"}}
}

func TestCollectRemovesUnused(t *testing.T) {
	w := newWorld(t, -1)
	mc := machineConfig("50-a", "red", "round=0")
	w.create(mc, newPool("red"))
	names := []string{w.rendered("red", whatever)}
	next := func() {
		mc.Spec.KernelArguments = []string{fmt.Sprintf("round=%d", len(names))}
		require.NoError(t, w.Client.Update(t.Context(), mc))
		names = append(names, w.rendered("red", func(n string) bool { return n != names[len(names)-1] }))
	}
	// Each of the first configs is referred to in another way before the next one is rendered.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
		Annotations: map[string]string{manifests.AnnotationCurrentConfig: names[0]}}}
	w.create(node)
	next()
	node.Annotations[manifests.AnnotationDesiredConfig] = names[1]
	require.NoError(t, w.Client.Update(t.Context(), node))
	next()
	build := buildOf("red-1", names[2], nil)
	w.create(build)
	next()
	moved := buildOf("red-2", "rendered-red-gone", map[string]string{manifests.LabelRenderedMachineConfig: names[3]})
	w.create(moved)
	next()
	w.rolledOut("red", names[4])
	next()
	next()
	w.left(names[0], names[1], names[2], names[3], names[4], names[6])

	node.Annotations = map[string]string{manifests.AnnotationCurrentConfig: names[6],
		manifests.AnnotationDesiredConfig: names[6]}
	require.NoError(t, w.Client.Update(t.Context(), node))
	w.left(names[2], names[3], names[4], names[6])
	require.NoError(t, w.Client.Delete(t.Context(), build))
	w.left(names[3], names[4], names[6])
	require.NoError(t, w.Client.Delete(t.Context(), moved))
	// A build that nobody knows to have moved wakes no pool; the pool's next event does.
	w.rolledOut("red", names[6])
	next()
	w.left(names[6], names[7])
}

// rolledOut writes what the node controller does when all nodes have a config, whatever the render controller writes
// meanwhile.
func (w *world) rolledOut(pool, config string) {
	w.t.Helper()
	p := w.pool(w.t, pool)
	was := p.DeepCopy()
	p.Status.Configuration.Name = config
	require.NoError(w.t, w.Client.Status().Patch(w.t.Context(), p, client.MergeFrom(was)))
}

func TestTheNewestFewAreKept(t *testing.T) {
	w := newWorld(t, 2)
	mc := machineConfig("50-a", "red", "round=0")
	w.create(mc, newPool("red"))
	last := w.rendered("red", whatever)
	for round := 1; round <= 4; round++ {
		mc.Spec.KernelArguments = []string{fmt.Sprintf("round=%d", round)}
		require.NoError(t, w.Client.Update(t.Context(), mc))
		before := last
		last = w.rendered("red", func(n string) bool { return n != before })
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		have := w.renderedConfigs(c)
		assert.Len(c, have, 3)
		assert.Contains(c, have, last)
	}, waitLimit, waitEvery)
}

// TestAFleet has the size of a large cluster, within what a test may take: what is rendered once is not written again
// by a controller that starts, and a change of one pool writes nothing for the others.
func TestAFleet(t *testing.T) {
	const pools, configs, nodes = 25, 8, 200
	w := newWorld(t, 0)
	w.stop() // it shall find everything
	var objects []client.Object
	for p := range pools {
		pool := fmt.Sprintf("p%02d", p)
		for c := range configs {
			objects = append(objects, machineConfig(fmt.Sprintf("%02d-%s", c, pool), pool, fmt.Sprintf("%s.%d=1", pool, c)))
		}
		objects = append(objects, newPool(pool))
	}
	for n := range nodes {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", n)}})
	}
	w.create(objects...)
	stop := w.start(Options{Versions: versions, Settle: -1})
	settled := func() map[string]string {
		out := map[string]string{}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var list mcfgv1.MachineConfigPoolList
			require.NoError(c, w.Client.List(t.Context(), &list))
			require.Len(c, list.Items, pools)
			for i := range list.Items {
				p := &list.Items[i]
				assert.Len(c, p.Spec.Configuration.Source, configs, p.Name)
				assert.NotEmpty(c, p.Status.Conditions, p.Name)
				out[p.Name] = p.ResourceVersion
			}
		}, waitLimit, waitEvery)
		return out
	}
	before := settled()
	stop()
	w.stop = w.start(Options{Versions: versions, Settle: -1})
	one := w.pool(t, "p07").Spec.Configuration.Name
	w.create(machineConfig("99-p07", "p07", "late=1"))
	w.rendered("p07", func(n string) bool { return n != one })
	w.create(machineConfig("99-bad", "p24", "x=1")) // the last pool in the queue has been looked at, too
	w.rendered("p24", func(string) bool { return len(w.pool(t, "p24").Spec.Configuration.Source) == configs+1 })
	for name, version := range before {
		if name != "p07" && name != "p24" {
			assert.Equal(t, version, w.pool(t, name).ResourceVersion, "pool %s is as it was", name)
		}
	}
	assert.Len(t, w.renderedConfigs(t), pools+2)
}
