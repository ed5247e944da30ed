package forecastcontroller_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// TestAForecastBeforeThePoolIsUnpaused walks a pool through a rollout of MCO's, and compares the advisor's requests
// with its rights.
func TestAForecastBeforeThePoolIsUnpaused(t *testing.T) {
	w := newWorld(t)
	const was, is = "rendered-walk-1", "rendered-walk-2"
	w.config(was, "/etc/a=1")
	w.config(is, "/etc/a=2")
	p := w.pool("walk", was, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	first, second := w.node("walk", "walk-0", was), w.node("walk", "walk-1", was)
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "walk-stray"}})
	w.advise()
	w.says("walk", "Every node of pool walk has "+was)

	change(w, p, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = is })
	data := w.says("walk", "Pool walk is paused. When spec.paused is false: "+is+" changes 2 nodes: Reboot",
		"no policy covers this path", `"boots":1`, `"actor":"machine-config-operator"`, "2 wait: Paused")
	var f struct {
		Effect forecast.Effect
		Paused bool
	}
	require.NoError(t, json.Unmarshal([]byte(data[forecast.KeyForecast]), &f))
	assert.True(t, f.Paused)
	require.Len(t, f.Effect.Transitions, 1)
	assert.Equal(t, 2, f.Effect.Transitions[0].Nodes)
	w.series("dayone_forecast_level", 4, "walk")
	w.series("dayone_forecast_nodes", 2, "Reboot", "walk")
	w.series("dayone_nodes_waiting", 2, "walk", "Paused")
	w.series("dayone_nodes_waiting", 1, "", "Unmanaged")
	assert.Contains(t, w.data("dayone-unmanaged")[forecast.KeySummary], "walk-stray")

	change(w, p, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = false })
	change(w, first, func(n *corev1.Node) { // what MCO's node controller, its daemon and its drain controller write
		n.Annotations[manifests.AnnotationDesiredConfig], n.Annotations[manifests.AnnotationState] = is, "Working"
		n.Annotations[manifests.MCOPrefix+"desiredDrain"] = "drain-" + is
	})
	w.hold("walk-0")
	w.says("walk", "walk-1: 1 nodes are unavailable or on their way, and at most 1 may be: walk-0",
		"is drained for the target: PodDisruptionBudget walk/held allows no eviction of pod held now")

	change(w, first, func(n *corev1.Node) {
		n.Annotations[manifests.AnnotationState] = "Degraded"
		n.Annotations[manifests.AnnotationReason] = "no space left"
		n.Annotations[manifests.MCOPrefix+"lastAppliedDrain"] = "drain-" + is
	})
	w.says("walk", "is Degraded: no space left", "MCO starts no other node while walk-0 failed")
	w.series("dayone_nodes_waiting", 1, "walk", "DegradedNode")

	for _, n := range []*corev1.Node{first, second} {
		change(w, n, func(n *corev1.Node) {
			n.Annotations[manifests.AnnotationDesiredConfig], n.Annotations[manifests.AnnotationCurrentConfig] = is, is
			n.Annotations[manifests.AnnotationState] = "Done"
		})
	}
	w.says("walk", "Every node of pool walk has "+is)
	w.told("walk", 1)

	// The policies' part, so that each right has been used.
	w.create(owned("99-walk", "walk", "Restart app.service", "/etc/walk"))
	w.published("/etc/walk")
	require.NoError(t, w.env.Client.Delete(t.Context(), p))
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Nil(c, w.data("dayone-pool-walk")) }, soon, often)
	ours := slices.DeleteFunc(rights(t), func(o *unstructured.Unstructured) bool {
		return o.GetName() != "dayone-forecast"
	})
	w.calls.JustThese(t, ours, cluster.AdvisorNamespace, cluster.Controller)
	for _, o := range ours {
		raw, err := json.Marshal(o)
		require.NoError(t, err)
		assert.NotContains(t, strings.ToLower(string(raw)), "secret")
	}
}

// hold puts a pod on a node whose budget lets nothing go.
func (w *world) hold(node string) {
	w.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "walk"}})
	meta := metav1.ObjectMeta{Namespace: "walk", Name: "held", Labels: map[string]string{"app": "held"}}
	w.create(&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}})
	b := &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: meta.Labels}}}
	w.create(b)
	b.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, DesiredHealthy: 1, CurrentHealthy: 1,
		ObservedGeneration: 1}
	require.NoError(w, w.env.Client.Status().Update(w.Context(), b))
}

// told counts the events of a pool.
func (w *world) told(pool string, want int) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(c, w.env.Client.List(w.Context(), &list, client.InNamespace("default")))
		n := 0
		for _, e := range list.Items {
			if e.Reason == "ForecastPublished" && e.Regarding.Name == pool {
				n++
			}
		}
		assert.Equal(c, want, n)
	}, soon, often)
}

// TestALayeredPoolsImageIsBuiltFirst says what the image that MCO builds will do, and that a build that failed holds
// the pool.
func TestALayeredPoolsImageIsBuiltFirst(t *testing.T) {
	w := newWorld(t)
	const was, is = "rendered-lay-1", "rendered-lay-2"
	w.config(was, "/etc/a=1")
	w.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: is}, Spec: mcfgv1.MachineConfigSpec{
		Extensions: []string{"usbguard"}, Config: runtime.RawExtension{Raw: ignition("/etc/a=1")}}})
	w.pool("lay", is)
	n := w.node("lay", "lay-0", was)
	const image = "r.example.com/os/lay@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	change(w, n, func(n *corev1.Node) {
		n.Annotations[manifests.AnnotationCurrentImage], n.Annotations[manifests.AnnotationDesiredImage] = image, image
	})
	w.create(&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "lay"}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: "lay"},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "r.example.com/os/lay:x"}})
	w.advise()
	w.says("lay", "Its image is built first: the image for "+is+" is not built yet", "Reboot on 1", "ImageOutstanding")
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "lay-b"}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig:         mcfgv1.MachineConfigReference{Name: is},
		MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "lay"},
		RenderedImagePushSpec: "r.example.com/os/lay:x"}}
	w.create(b)
	w.says("lay", "MachineOSBuild lay-b builds the image")
	b.Status.BuildStart, b.Status.BuildEnd = &metav1.Time{Time: b.CreationTimestamp.Time}, new(metav1.Now())
	b.Status.BuildStart.Time = b.Status.BuildEnd.Add(-60e9)
	b.Status.Conditions = []metav1.Condition{{Type: "Failed", Status: metav1.ConditionTrue, Reason: "Failed",
		LastTransitionTime: metav1.Now()}}
	require.NoError(t, w.env.Client.Status().Update(t.Context(), b))
	w.says("lay", "MachineOSBuild lay-b failed", "the pool gets no config until then")
}

// TestAPoolWhoseConfigIsBroken says what is not known, and what the pool complains of.
func TestAPoolWhoseConfigIsBroken(t *testing.T) {
	w := newWorld(t)
	w.config("rendered-broken-1", "/etc/a=1")
	p := w.pool("broken", "rendered-broken-2")
	w.node("broken", "broken-0", "rendered-broken-1")
	p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: "RenderDegraded", Status: corev1.ConditionTrue,
		Reason: "Failed", Message: "parsing Ignition config failed"}}
	require.NoError(t, w.env.Client.Status().Update(t.Context(), p))
	w.advise()
	w.says("broken", "there is no rendered config rendered-broken-2", "parsing Ignition config failed")
	bad := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-broken-3"}}
	bad.Spec.Config.Raw = []byte(`{"ignition":{"version":"99.0.0"}}`)
	w.create(bad)
	change(w, p, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = bad.Name })
	w.says("broken", "Not known: pool broken", "read rendered config rendered-broken-3")
}
