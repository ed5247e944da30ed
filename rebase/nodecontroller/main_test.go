package nodecontroller_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/nodecontroller"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/target"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

// fixture is one pool of its own on the shared API server, and the controller under its service account.
type fixture struct {
	*testing.T
	env  *kubetest.Env
	pool string
	r    *nodecontroller.Reconciler
	o    nodecontroller.Options
	c    client.Client
	ev   *events.FakeRecorder
}

func newFixture(t *testing.T, o nodecontroller.Options) *fixture {
	env := shared.Env(t)
	env.InstallRights(t)
	return newFixtureIn(t, env, o)
}

func newFixtureIn(t *testing.T, env *kubetest.Env, o nodecontroller.Options) *fixture {
	f := &fixture{T: t, env: env, o: o, c: env.ClientAs(t, cluster.DefaultNamespace, cluster.Controller),
		ev: events.NewFakeRecorder(1000)}
	f.pool = strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	f.restart()
	f.create(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: f.pool}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + f.pool: ""}},
		Configuration: configuration("rendered-" + f.pool + "-1")}})
	return f
}

// restart makes a new controller, as after a crash: it knows nothing.
func (f *fixture) restart() { f.r = nodecontroller.New(f.c, f.ev, f.o) }

// measure gives what the metrics show, by name and labels.
func (f *fixture) measure() func() map[string]float64 {
	f.Helper()
	to := prometheus.NewPedanticRegistry()
	require.NoError(f, f.r.Measure(to))
	return func() map[string]float64 {
		families, err := to.Gather()
		require.NoError(f, err)
		out := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				out[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue()
			}
		}
		return out
	}
}

func configuration(name string) mcfgv1.MachineConfigPoolStatusConfiguration {
	return mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: corev1.ObjectReference{Name: name}}
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	require.NoError(f, f.env.Client.Create(f.Context(), o))
	f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), o) })
}

// node makes a ready node whose agent has reported a config and an image.
func (f *fixture) node(name string, at target.Target) {
	f.Helper()
	annotations := map[string]string{manifests.AnnotationCurrentConfig: at.Config,
		manifests.AnnotationDesiredConfig: at.Config, manifests.AnnotationState: "Done"}
	if at.Image != "" {
		annotations[manifests.AnnotationCurrentImage], annotations[manifests.AnnotationDesiredImage] = at.Image, at.Image
		annotations[manifests.AnnotationDesiredOSImage] = at.Image
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name(name),
		Labels: map[string]string{"node-role.kubernetes.io/" + f.pool: ""}, Annotations: annotations}}
	f.create(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), n))
}

func (f *fixture) name(node string) string { return f.pool + "-" + node }

func (f *fixture) look() reconcile.Result {
	f.Helper()
	out, err := f.r.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: f.pool}})
	require.NoError(f, err)
	return out
}

func (f *fixture) record(node string) nodestate.Record {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	r, err := nodestate.Parse(n.Annotations)
	require.NoError(f, err)
	return r
}

// arrived is what a node's agent says of it at the end.
func (f *fixture) arrived(node string, at time.Time) {
	f.Helper()
	f.agent(node, arrive)
	var record mcfgv1.MachineConfigNode
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &record))
	meta.SetStatusCondition(&record.Status.Conditions, metav1.Condition{Type: string(mcfgv1.MachineConfigNodeUpdated),
		Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(at)})
	require.NoError(f, f.env.Client.Status().Update(f.Context(), &record))
}

// ready is what the node's kubelet says.
func (f *fixture) ready(node string, is bool) {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	if !is {
		n.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), &n))
}

func (f *fixture) annotation(node, key string) string {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	return n.Annotations[key]
}

func (f *fixture) annotate(node, key, value string) {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	n.Annotations[key] = value
	require.NoError(f, f.env.Client.Update(f.Context(), &n))
}

// agent does to a node's record what its agent would.
func (f *fixture) agent(node string, change func(*nodestate.Record)) {
	f.Helper()
	var n corev1.Node
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.name(node)}, &n))
	r, err := nodestate.Parse(n.Annotations)
	require.NoError(f, err)
	change(&r)
	changes, err := r.Patch(n.Annotations)
	require.NoError(f, err)
	n.Annotations = nodestate.Apply(n.Annotations, changes)
	require.NoError(f, f.env.Client.Update(f.Context(), &n))
}

func arrive(r *nodestate.Record) {
	r.CurrentConfig, r.CurrentImage, r.State, r.Reason = r.DesiredConfig, r.DesiredImage, nodestate.StateDone, ""
}

func fail(why string) func(*nodestate.Record) {
	return func(r *nodestate.Record) { r.State, r.Reason = nodestate.StateDegraded, why }
}

// render points the pool at another config.
func (f *fixture) render(config string, change ...func(*mcfgv1.MachineConfigPool)) {
	f.Helper()
	p := f.object()
	p.Spec.Configuration = configuration(config)
	for _, c := range change {
		c(p)
	}
	require.NoError(f, f.env.Client.Update(f.Context(), p))
}

func (f *fixture) object() *mcfgv1.MachineConfigPool {
	f.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.pool}, p))
	return p
}

func (f *fixture) condition(t mcfgv1.MachineConfigPoolConditionType) mcfgv1.MachineConfigPoolCondition {
	f.Helper()
	for _, c := range f.object().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	f.Fatalf("pool %s has no condition %s", f.pool, t)
	return mcfgv1.MachineConfigPoolCondition{}
}

func image(n int) string {
	return fmt.Sprintf("r.example.com/os/worker@sha256:%064d", n)
}

// layer opts the pool in, with an image that a build has brought for a config.
func (f *fixture) layer(build, config, image string) {
	f.Helper()
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: f.pool + "-" + build,
		Labels: map[string]string{manifests.LabelRenderedMachineConfig: config}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: config},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: f.pool}, RenderedImagePushSpec: "r.example.com/os/worker:x"}}
	f.create(b)
	start := metav1.NewTime(time.Now().Add(-time.Minute))
	end := metav1.Now()
	b.Status = mcfgv1.MachineOSBuildStatus{BuildStart: &start, BuildEnd: &end,
		DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image),
		Builder: &mcfgv1.MachineOSBuilderReference{ImageBuilderType: mcfgv1.JobBuilder,
			Job: &mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: "x", Name: "y"}},
		Conditions: []metav1.Condition{{Type: string(mcfgv1.MachineOSBuildSucceeded), Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: end}}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), b))
	m := &mcfgv1.MachineOSConfig{}
	err := f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.pool}, m)
	if apierrors.IsNotFound(err) {
		m = &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool},
			Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: f.pool},
				ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
				RenderedImagePushSpec:   "r.example.com/os/worker:x"}}
		f.create(m)
	} else {
		require.NoError(f, err)
	}
	m.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	m.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: b.Name}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), m))
}
