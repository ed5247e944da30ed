package upstream_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodecontroller"
)

// watched is the pool whose status both controllers write.
const watched = "worker"

// TestPoolConditions gives the real machine-config-controller and dayone's node controller the same pool and nodes in
// a real API server: both say the same of it. dayone's looks on and writes nothing.
func TestPoolConditions(t *testing.T) {
	m := run.mco(t)
	if testing.Short() {
		run.without(t, "needs a real kube-apiserver, which is left out with -short")
	}
	compared := 0
	run.record(t, func() string {
		return fmt.Sprintf("%d situations of a pool: equal conditions, counts, taints and topology", compared)
	})
	b := m.operator(t, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	w := newWorld(t)
	w.post(b)
	w.start(m, "machine-config-controller", "--templates", filepath.Join(string(m), "templates"),
		"--payload-version", release, "--metrics-listen-address", fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)),
		"--kubeconfig", w.kubeconfig, "--streams-cache", t.TempDir())
	first := w.config("")
	for _, name := range []string{"a", "b"} {
		w.worker(name, first)
	}
	second := ""
	for _, s := range []struct {
		name string
		// do makes the situation; settled tells that the real controller has done its part.
		do      func()
		settled func() bool
	}{
		{name: "converged"},
		{name: "a new config, one node is sent", do: func() {
			w.create(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-motd",
				Labels: map[string]string{manifests.LabelRole: watched}}, Spec: mcfgv1.MachineConfigSpec{
				Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[` +
					`{"path":"/etc/motd","contents":{"source":"data:,x"}}]}}`)}}})
			second = w.config(first)
		}, settled: func() bool { return w.sent(second) == 1 }},
		{name: "paused with outstanding nodes", do: func() { w.pause(true) }},
		{name: "no longer paused", do: func() { w.pause(false) }},
		{name: "an agent gave up", do: func() {
			w.node("a", func(n *corev1.Node) {
				n.Annotations[manifests.AnnotationState] = "Degraded"
				n.Annotations[manifests.AnnotationReason] = "the disk is full"
			})
		}},
		{name: "it is not ready either", do: func() { w.ready("a", corev1.ConditionFalse) }},
		{name: "it has arrived, and the next one is sent", do: func() {
			w.ready("a", corev1.ConditionTrue)
			w.node("a", arrived)
		}, settled: func() bool { return w.sent(second) == 2 }},
		{name: "all have arrived", do: func() { w.node("b", arrived) }},
		{name: "one is cordoned", do: func() { w.node("b", func(n *corev1.Node) { n.Spec.Unschedulable = true }) }},
		{name: "one is not ready", do: func() {
			w.node("b", func(n *corev1.Node) { n.Spec.Unschedulable = false })
			w.ready("b", corev1.ConditionFalse)
		}},
		{name: "all are well", do: func() { w.ready("b", corev1.ConditionTrue) }},
		{name: "opted in, no build yet", do: func() { w.optIn() }},
		{name: "its build is prepared", do: func() { w.build(second, mcfgv1.MachineOSBuildPrepared) }},
		{name: "its build runs", do: func() { w.build(second, mcfgv1.MachineOSBuilding) }},
		{name: "paused while it runs", do: func() { w.pause(true) }},
		// Of a pool that is not paused the real controller writes no status once a build has failed.
		{name: "paused, and the build has failed", do: func() { w.build(second, mcfgv1.MachineOSBuildFailed) }},
		{name: "paused, and a further build was interrupted", do: func() {
			w.rebuild()
			w.build(second, mcfgv1.MachineOSBuildInterrupted)
		}},
		{name: "paused, and a further build has its image", do: func() {
			w.rebuild()
			w.build(second, mcfgv1.MachineOSBuildSucceeded)
		}},
		{name: "no longer paused, one node is sent to the image", do: func() { w.pause(false) },
			settled: func() bool { return w.sentTo(image("worker-os")) == 1 }},
		{name: "its agent gave up at the image", do: func() {
			w.node("a", func(n *corev1.Node) { n.Annotations[manifests.AnnotationState] = "Degraded" })
		}},
		{name: "one has the image", do: func() { w.node("a", arrived) },
			settled: func() bool { return w.sentTo(image("worker-os")) == 2 }},
		{name: "all have the image", do: func() { w.node("b", arrived) }},
	} {
		if s.do != nil {
			s.do()
		}
		if s.settled != nil {
			w.eventually(s.name+": the real controller has done its part", func(context.Context) error {
				if !s.settled() {
					return fmt.Errorf("%d nodes at %s", w.sent(second), second)
				}
				return nil
			})
		}
		w.alike(s.name)
		compared++
	}
}

// alike waits until both say the same of the pool, in three looks one after the other: the real controller may be late.
func (w *world) alike(situation string) {
	w.t.Helper()
	equal := 0
	var real, ours map[string]any
	if !assert.Eventually(w.t, func() bool {
		real, ours = w.said()
		if equal++; !assert.ObjectsAreEqual(real, ours) {
			equal = 0
		}
		return equal == 3
	}, time.Minute, time.Second, situation) {
		require.Equal(w.t, real, ours, "%s: MCO's and dayone's", situation)
	}
	w.t.Logf("%s: %v", situation, real)
}

// said is what the real controller has written of the pool, and what dayone's would write.
func (w *world) said() (real, ours map[string]any) {
	w.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.env.Client.Get(w.t.Context(), client.ObjectKey{Name: watched}, p))
	look := &onlooker{Client: w.env.Client, status: p.Status}
	r := nodecontroller.New(look, events.NewFakeRecorder(1000), nodecontroller.Options{})
	_, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: watched}})
	require.NoError(w.t, err)
	var nodes corev1.NodeList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &nodes))
	real, ours = summary(p.Status), summary(look.status)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		real[n.Name], ours[n.Name] = marks(n), marks(n)
		if changed := look.nodes[n.Name]; changed != nil {
			ours[n.Name] = marks(changed)
		}
	}
	return real, ours
}

// marks are what others read upon a node.
func marks(n *corev1.Node) string {
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "UpdateInProgress" && t.Effect == corev1.TaintEffectPreferNoSchedule && t.Value == ""
	})
	return fmt.Sprintf("tainted %t, topology %q", tainted,
		n.Annotations["machineconfiguration.openshift.io/controlPlaneTopology"])
}

func summary(s mcfgv1.MachineConfigPoolStatus) map[string]any {
	out := map[string]any{"counts": [5]int32{s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount,
		s.UnavailableMachineCount, s.DegradedMachineCount}, "generation": s.ObservedGeneration,
		"pinned": s.PoolSynchronizersStatus}
	for _, c := range s.Conditions {
		switch c.Type {
		case mcfgv1.MachineConfigPoolUpdated, mcfgv1.MachineConfigPoolUpdating, mcfgv1.MachineConfigPoolNodeDegraded,
			mcfgv1.MachineConfigPoolDegraded:
			out[string(c.Type)] = string(c.Status)
		}
	}
	return out
}

// onlooker reads the cluster and writes nothing; status is the pool's as it would be.
type onlooker struct {
	client.Client
	status mcfgv1.MachineConfigPoolStatus
	nodes  map[string]*corev1.Node
}

// Patch lets the API server apply a patch of a node and keep nothing of it.
func (o *onlooker) Patch(ctx context.Context, object client.Object, p client.Patch, more ...client.PatchOption) error {
	n, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	if err := o.Client.Patch(ctx, n, p, append(more, client.DryRunAll)...); err != nil {
		return err
	}
	if o.nodes == nil {
		o.nodes = map[string]*corev1.Node{}
	}
	o.nodes[n.Name] = n.DeepCopy()
	return nil
}

// Create makes nothing.
func (*onlooker) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// Status notes a pool's.
func (o *onlooker) Status() client.SubResourceWriter {
	return statusWriter{o.Client.Status(), o}
}

type statusWriter struct {
	client.SubResourceWriter
	to *onlooker
}

func (s statusWriter) Patch(_ context.Context, o client.Object, _ client.Patch,
	_ ...client.SubResourcePatchOption) error {
	if p, ok := o.(*mcfgv1.MachineConfigPool); ok {
		s.to.status = p.Status
	}
	return nil
}

// config waits until the real controller has rendered another config than one.
func (w *world) config(other string) (name string) {
	w.t.Helper()
	w.eventually("pool "+watched+" is rendered", func(ctx context.Context) error {
		p := &mcfgv1.MachineConfigPool{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: watched}, p); err != nil {
			return err
		}
		if name = p.Spec.Configuration.Name; name == "" || name == other {
			return fmt.Errorf("it has config %q", name)
		}
		return nil
	})
	return name
}

// worker makes a node that has a config.
func (w *world) worker(name, config string) {
	w.t.Helper()
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		// The real controller goes by zones. Within a zone it goes by age, and these nodes are equally old.
		Labels: map[string]string{"node-role.kubernetes.io/" + watched: "", corev1.LabelTopologyZone: name},
		Annotations: map[string]string{
			manifests.AnnotationCurrentConfig: config, manifests.AnnotationDesiredConfig: config,
			manifests.AnnotationState: manifests.StateDone}}})
	w.ready(name, corev1.ConditionTrue)
}

// node changes a node, whoever else changes it meanwhile.
func (w *world) node(name string, change func(*corev1.Node)) {
	w.t.Helper()
	w.eventually("node "+name+" is changed", func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		change(n)
		return w.env.Client.Update(ctx, n)
	})
}

func (w *world) ready(name string, is corev1.ConditionStatus) {
	w.t.Helper()
	w.eventually("node "+name+" reports", func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
		return w.env.Client.Status().Update(ctx, n)
	})
}

// arrived is what an agent says at the end.
func arrived(n *corev1.Node) {
	n.Annotations[manifests.AnnotationCurrentConfig] = n.Annotations[manifests.AnnotationDesiredConfig]
	if wanted, found := n.Annotations[manifests.AnnotationDesiredImage]; found {
		n.Annotations[manifests.AnnotationCurrentImage] = wanted
	}
	n.Annotations[manifests.AnnotationState] = manifests.StateDone
	delete(n.Annotations, manifests.AnnotationReason)
}

// sent counts the nodes whose desired config is one; sentTo, whose desired image is one.
func (w *world) sent(config string) int { return w.desire(manifests.AnnotationDesiredConfig, config) }

func (w *world) sentTo(image string) int { return w.desire(manifests.AnnotationDesiredImage, image) }

func (w *world) desire(key, value string) (count int) {
	w.t.Helper()
	var nodes corev1.NodeList
	require.NoError(w.t, w.env.Client.List(w.t.Context(), &nodes))
	for i := range nodes.Items {
		if nodes.Items[i].Annotations[key] == value {
			count++
		}
	}
	return count
}

func (w *world) pause(is bool) {
	w.t.Helper()
	w.eventually("pool is paused or not", func(ctx context.Context) error {
		p := &mcfgv1.MachineConfigPool{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: watched}, p); err != nil {
			return err
		}
		p.Spec.Paused = is
		return w.env.Client.Update(ctx, p)
	})
}

func (w *world) optIn() {
	w.t.Helper()
	w.create(&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: watched}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: watched},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "registry.example.com/ocp/worker-os:latest"}})
}

// current is the name of the build that counts.
const current = watched + "-0123456789abcdef"

// rebuild removes the build, as a request for another one does.
func (w *world) rebuild() {
	w.t.Helper()
	require.NoError(w.t, w.env.Client.Delete(w.t.Context(),
		&mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: current}}))
}

// build is what a builder writes of the pool's build for a config when it comes to a state.
func (w *world) build(config string, state mcfgv1.BuildProgress) {
	w.t.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: current,
		Labels: map[string]string{manifests.LabelRenderedMachineConfig: config}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: watched},
			RenderedImagePushSpec: "registry.example.com/ocp/worker-os:latest"}}
	if err := w.env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		w.create(b)
	}
	start, now := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.Now()
	if b.Status.BuildStart == nil {
		b.Status.BuildStart = &start
	}
	b.Status.Builder = &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
		Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}}
	b.Status.Conditions = nil
	for _, one := range []mcfgv1.BuildProgress{mcfgv1.MachineOSBuildPrepared, mcfgv1.MachineOSBuilding,
		mcfgv1.MachineOSBuildFailed, mcfgv1.MachineOSBuildInterrupted, mcfgv1.MachineOSBuildSucceeded} {
		c := metav1.Condition{Type: string(one), Status: metav1.ConditionFalse, Reason: "Said", LastTransitionTime: now}
		if one == state {
			c.Status = metav1.ConditionTrue
		}
		b.Status.Conditions = append(b.Status.Conditions, c)
	}
	if state == mcfgv1.MachineOSBuildSucceeded {
		b.Status.BuildEnd, b.Status.DigestedImagePushSpec = &now, mcfgv1.ImageDigestFormat(image("worker-os"))
	}
	require.NoError(w.t, w.env.Client.Status().Update(w.t.Context(), b))
	w.counts(b)
}

// counts lets the pool's MachineOSConfig name a build, and its image when it has one.
func (w *world) counts(b *mcfgv1.MachineOSBuild) {
	w.t.Helper()
	w.eventually("MachineOSConfig names its build", func(ctx context.Context) error {
		m := &mcfgv1.MachineOSConfig{}
		if err := w.env.Client.Get(ctx, client.ObjectKey{Name: watched}, m); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, manifests.AnnotationCurrentBuild, b.Name)
		if err := w.env.Client.Update(ctx, m); err != nil || b.Status.DigestedImagePushSpec == "" {
			return err
		}
		m.Status.CurrentImagePullSpec = b.Status.DigestedImagePushSpec
		m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}
		return w.env.Client.Status().Update(ctx, m)
	})
}
