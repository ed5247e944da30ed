package draincontroller_test

import (
	"os"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodestate"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }

type fixture struct {
	*testing.T
	env  *kubetest.Env
	node string
	now  time.Time
	r    *draincontroller.Reconciler
	ev   *events.FakeRecorder
}

// newFixture makes a node with an agent's record and a MachineConfigNode, and the controller under its service account.
func newFixture(t *testing.T, labels map[string]string) *fixture {
	env := shared.Env(t)
	env.InstallRights(t)
	f := &fixture{T: t, env: env, node: strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"), now: time.Now().
		Truncate(time.Second), ev: events.NewFakeRecorder(100)}
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node, Labels: labels, Annotations: map[string]string{
		manifests.AnnotationCurrentConfig: "rendered-worker-1", manifests.AnnotationDesiredConfig: "rendered-worker-2",
		manifests.AnnotationState: "Working"}}})
	f.create(&mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: f.node},
		Spec: mcfgv1.MachineConfigNodeSpec{Node: mcfgv1.MCOObjectReference{Name: f.node},
			Pool:          mcfgv1.MCOObjectReference{Name: "worker"},
			ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-worker-2"}}})
	f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.node}})
	f.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: f.node}})
	f.restart()
	return f
}

func (f *fixture) restart() {
	cfg := f.env.As(f.T, cluster.DefaultNamespace, cluster.Controller)
	pods, err := kubernetes.NewForConfig(cfg)
	require.NoError(f, err)
	f.r = draincontroller.New(f.env.ClientAs(f.T, cluster.DefaultNamespace, cluster.Controller), pods, f.ev,
		draincontroller.Options{Now: func() time.Time { return f.now }})
}

// shown is MCO's metric of failed drains, by the node's name.
func (f *fixture) shown() map[string]float64 {
	f.Helper()
	to := prometheus.NewPedanticRegistry()
	require.NoError(f, f.r.Measure(to))
	families, err := to.Gather()
	require.NoError(f, err)
	out := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "mcc_drain_err" {
			for _, m := range family.GetMetric() {
				out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

func (f *fixture) create(o client.Object) {
	f.Helper()
	require.NoError(f, f.env.Client.Create(f.Context(), o))
}

func (f *fixture) object() *corev1.Node {
	f.Helper()
	n := &corev1.Node{}
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.node}, n))
	return n
}

// ask writes the agent's request.
func (f *fixture) ask(verb string) { f.askFor(verb, "rendered-worker-2") }

func (f *fixture) askFor(verb, config string) {
	f.Helper()
	f.change(func(n *corev1.Node) {
		r, err := nodestate.Parse(n.Annotations)
		require.NoError(f, err)
		r.DesiredDrain = nodestate.DrainRequest(verb, config)
		changes, err := r.Patch(n.Annotations)
		require.NoError(f, err)
		n.Annotations = nodestate.Apply(n.Annotations, changes)
	})
}

func (f *fixture) change(do func(*corev1.Node)) {
	f.Helper()
	n := f.object()
	do(n)
	require.NoError(f, f.env.Client.Update(f.Context(), n))
}

func (f *fixture) look() (reconcile.Result, error) { return f.r.Reconcile(f.Context(), f.request()) }

func (f *fixture) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: f.node}}
}

// set is an administrator's cordon or its end.
func (f *fixture) set(cordoned bool) {
	f.change(func(n *corev1.Node) { n.Spec.Unschedulable = cordoned })
}

func (f *fixture) answered() bool {
	r, err := nodestate.Parse(f.object().Annotations)
	require.NoError(f, err)
	return r.Drained()
}

func (f *fixture) condition(name string) *metav1.Condition {
	f.Helper()
	var mcn mcfgv1.MachineConfigNode
	require.NoError(f, f.env.Client.Get(f.Context(), client.ObjectKey{Name: f.node}, &mcn))
	c := meta.FindStatusCondition(mcn.Status.Conditions, name)
	require.NotNil(f, c, name)
	return c
}

// pod runs on the node, as a kubelet would report it.
func (f *fixture) pod(name string, labels map[string]string) {
	f.Helper()
	zero := int64(0)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.node, Labels: labels},
		Spec: corev1.PodSpec{NodeName: f.node, TerminationGracePeriodSeconds: &zero,
			Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	f.create(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), p))
}

func TestDrainsAndUncordons(t *testing.T) {
	f := newFixture(t, nil)
	f.pod("a", nil)
	f.ask(nodestate.Drain)
	for range 5 {
		_, err := f.look()
		require.NoError(t, err)
	}
	assert.True(t, f.answered())
	assert.True(t, f.object().Spec.Unschedulable)
	assert.Equal(t, metav1.ConditionTrue, f.condition("Drained").Status)
	var pods corev1.PodList
	require.NoError(t, f.env.Client.List(t.Context(), &pods, client.InNamespace(f.node)))
	assert.Empty(t, pods.Items)
	f.ask(nodestate.Uncordon)
	_, err := f.look()
	require.NoError(t, err)
	assert.True(t, f.answered())
	n := f.object()
	assert.False(t, n.Spec.Unschedulable)
	assert.NotContains(t, n.Annotations, manifests.AnnotationCordonedBy)
	assert.NotContains(t, n.Annotations, manifests.AnnotationDrainStarted)
	assert.Equal(t, metav1.ConditionFalse, f.condition("Drained").Status)
	still := n.ResourceVersion
	_, err = f.look()
	require.NoError(t, err)
	assert.Equal(t, still, f.object().ResourceVersion)
}

func TestSomebodyElsesCordonStays(t *testing.T) {
	f := newFixture(t, nil)
	f.change(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	f.ask(nodestate.Drain)
	_, err := f.look()
	require.NoError(t, err)
	assert.True(t, f.answered())
	f.ask(nodestate.Uncordon)
	_, err = f.look()
	require.NoError(t, err)
	assert.True(t, f.answered())
	assert.True(t, f.object().Spec.Unschedulable)
	assert.Contains(t, f.condition("Uncordoned").Message, "somebody else")
}

// budget protects pods with a label from leaving.
func (f *fixture) budget() *policyv1.PodDisruptionBudget { return f.budgetNamed("keep") }

func (f *fixture) budgetNamed(name string) *policyv1.PodDisruptionBudget {
	f.Helper()
	all := intstr.FromString("100%")
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.node},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &all,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "me"}}}}
	f.create(b)
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, ExpectedPods: 1, DesiredHealthy: 1,
		CurrentHealthy: 1}
	require.NoError(f, f.env.Client.Status().Update(f.Context(), b))
	return b
}

func TestBudgetHoldsUntilItLetsGo(t *testing.T) {
	f := newFixture(t, nil)
	b := f.budget()
	f.pod("kept", map[string]string{"keep": "me"})
	f.ask(nodestate.Drain)
	out, err := f.look()
	require.NoError(t, err)
	assert.Positive(t, out.RequeueAfter, "it is tried again")
	assert.False(t, f.answered())
	c := f.condition("Drained")
	assert.Contains(t, c.Message, "/kept: held by a PodDisruptionBudget")
	assert.Contains(t, c.Message, "keep")

	f.change(func(n *corev1.Node) { n.Spec.Unschedulable = false })
	_, err = f.look()
	require.NoError(t, err)
	assert.True(t, f.object().Spec.Unschedulable, "an uncordon in the middle is undone")

	f.now = f.now.Add(draincontroller.Limit - time.Second)
	f.restart()
	_, err = f.look()
	require.NoError(t, err)
	assert.Equal(t, "Draining", f.condition("Drained").Reason)
	assert.Contains(t, <-f.ev.Events, "Warning DrainThresholdExceeded the drain takes longer than 10m0s")
	assert.NotContains(t, f.shown(), f.node)
	f.now = f.now.Add(2 * time.Second)
	f.restart()
	for range 3 {
		out, err = f.look()
		require.NoError(t, err)
	}
	assert.Positive(t, out.RequeueAfter, "a failed drain is tried on")
	assert.Equal(t, "DrainFailed", f.condition("Drained").Reason, "its time counts from its start, whatever restarts")
	require.Len(t, f.ev.Events, 1, "said once")
	assert.Contains(t, <-f.ev.Events, "Warning DrainFailed")
	assert.Equal(t, 1.0, f.shown()[f.node], "MCO's alert sees it")
	assert.Contains(t, f.shown(), "initialize")

	require.NoError(t, f.env.Client.Delete(t.Context(), b))
	for range 3 {
		_, err = f.look()
		require.NoError(t, err)
	}
	assert.True(t, f.answered())
	assert.NotContains(t, f.shown(), f.node, "the alert ends")
}

func TestASlowDrainIsToldOnce(t *testing.T) {
	f := newFixture(t, nil)
	f.budget()
	f.pod("kept", map[string]string{"keep": "me"})
	f.ask(nodestate.Drain)
	_, err := f.look()
	require.NoError(t, err)
	assert.Empty(t, f.ev.Events)
	for range 20 {
		f.now = f.now.Add(2 * time.Minute)
		_, err = f.look()
		require.NoError(t, err)
	}
	require.Len(t, f.ev.Events, 1, "once of each drain, however often it is looked at")
	assert.Contains(t, <-f.ev.Events, "held by a PodDisruptionBudget")
}

// The API server has no answer for a pod under two budgets but an internal error, however often it is asked.
func TestAPodThatCannotBeEvictedSlowsNoDrain(t *testing.T) {
	f := newFixture(t, nil)
	f.budget()
	second := f.budgetNamed("second")
	f.pod("kept", map[string]string{"keep": "me"})
	f.pod("a", nil)
	f.ask(nodestate.Drain)
	for _, pause := range []time.Duration{1, 2, 5, 5} { // seconds
		out, err := f.look()
		require.NoError(t, err, "the queue would wait ever longer")
		assert.Equal(t, pause*time.Second, out.RequeueAfter)
		f.now = f.now.Add(pause * pause * 2 * time.Second)
	}
	c := f.condition("Drained")
	assert.Equal(t, "Draining", c.Reason)
	assert.Contains(t, c.Message, "1 pods remain", "the other one has left")
	assert.Contains(t, c.Message, "more than one PodDisruptionBudget")

	require.NoError(t, f.env.Client.Delete(t.Context(), second))
	_, err := f.look()
	require.NoError(t, err)
	assert.Contains(t, f.condition("Drained").Message, "held by a PodDisruptionBudget")
	assert.NotContains(t, f.condition("Drained").Message, "more than one")
}

func TestTheOnlyControlPlaneIsNotDrained(t *testing.T) {
	f := newFixture(t, map[string]string{"node-role.kubernetes.io/control-plane": ""})
	f.pod("a", nil)
	f.ask(nodestate.Drain)
	_, err := f.look()
	require.NoError(t, err)
	assert.True(t, f.answered())
	var pods corev1.PodList
	require.NoError(t, f.env.Client.List(t.Context(), &pods, client.InNamespace(f.node)))
	assert.Len(t, pods.Items, 1)
}

func TestFailureIsTriedAgain(t *testing.T) {
	f := newFixture(t, nil)
	f.pod("a", nil)
	f.ask(nodestate.Drain)
	f.env.StopAPIServer(t)
	_, err := f.look()
	require.Error(t, err, "the queue gets every failure back")
	f.env.StartAPIServer(t)
	for range 5 {
		_, err := f.look()
		require.NoError(t, err)
	}
	assert.True(t, f.answered())
}
