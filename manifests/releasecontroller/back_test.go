package releasecontroller_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/statuscontroller"
)

// halfWritten lets the controller be killed when some MachineConfigs have a release and some have not.
func (w *world) halfWritten(version string) {
	w.t.Helper()
	for lives := 0; ; lives++ {
		require.Less(w.t, lives, 30)
		tokens := w.tokens()
		if len(tokens) > 1 && strings.HasPrefix(tokens[len(tokens)-1], version+"-") && w.written(version) > 1 {
			return
		}
		w.oneWrite(func() bool { return false })
	}
}

// written counts the objects that were made for a release.
func (w *world) written(version string) (n int) {
	w.t.Helper()
	var configs mcfgv1.MachineConfigList
	require.NoError(w.t, w.Client.List(w.t.Context(), &configs))
	for _, m := range configs.Items {
		if strings.HasPrefix(m.Annotations[manifests.AnnotationRelease], version+"-") {
			n++
		}
	}
	return n
}

// A release that the cluster-version operator takes back while it is being written was on no node: the one before is
// written again, and nothing stays held. An older one than nodes have stays refused.
func TestAReleaseIsTakenBackBetweenTwoWrites(t *testing.T) {
	w := newWorld(t)
	for _, version := range []string{"4.21.0", "4.21.1", "4.21.2"} {
		w.operator(version, "")
	}
	noteGoes := func() { // the last of a release's writes
		t.Helper()
		require.Eventually(t, func() bool {
			var controller mcfgv1.ControllerConfig
			require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Name: render.ControllerConfigName}, &controller))
			return controller.Annotations[manifests.AnnotationReleaseBefore] == ""
		}, waitLimit, waitEvery, "the note of the release before goes")
	}
	w.start(w.config)
	w.follows("4.21.0")
	w.release("4.21.1")
	w.follows("4.21.1")
	noteGoes()
	w.release("4.21.0")
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseGoesBack", "nodes keep 4.21.1")
	w.stop()

	w.release("4.21.2")
	w.halfWritten("4.21.2")
	w.release("4.21.0")
	w.start(w.config)
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseGoesBack", "nodes keep 4.21.1")
	assert.Positive(t, w.written("4.21.2"), "what is half written is held")
	w.release("4.21.1")
	w.follows("4.21.1")
	w.has("00-worker", "hash-4.21.1/a", "hash-4.21.1/new", "hash-4.21.1/b", "new.service")
	noteGoes()

	// Written to the end, a release is the nodes', though somebody takes a mark away afterwards.
	w.release("4.21.2")
	w.follows("4.21.2")
	noteGoes()
	w.stop()
	require.NoError(t, w.Client.Patch(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "00-worker"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+
			manifests.AnnotationRelease+`":null}}}`))))
	w.release("4.21.1")
	w.start(w.config)
	w.is("ReleaseDegraded", metav1.ConditionTrue, "ReleaseGoesBack", "nodes keep 4.21.2")
	w.stop()
}

// operatorSays waits until the ClusterOperator dayone has a condition.
func (w *world) operatorSays(kind string, status configv1.ConditionStatus, reason string, texts ...string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var o configv1.ClusterOperator
		if !assert.NoError(c, w.Client.Get(context.Background(), client.ObjectKey{Name: cluster.ManagedBy}, &o)) {
			return
		}
		i := slices.IndexFunc(o.Status.Conditions, func(has configv1.ClusterOperatorStatusCondition) bool {
			return string(has.Type) == kind
		})
		if !assert.GreaterOrEqual(c, i, 0) {
			return
		}
		has := o.Status.Conditions[i]
		assert.Equal(c, string(status)+" "+reason, string(has.Status)+" "+has.Reason, has.Message)
		for _, text := range texts {
			assert.Contains(c, has.Message, text)
		}
	}, waitLimit, waitEvery)
}

// Whoever watches the ClusterOperator alone sees how a release is followed: the one controller says it in its
// ConfigMap, the other one, with its own rights, takes it from there.
func TestTheClusterOperatorSaysHowAReleaseIsFollowed(t *testing.T) {
	w := newWorld(t)
	w.start(w.config)
	mgr, err := ctrl.NewManager(w.As(t, cluster.DefaultNamespace, cluster.Controller), ctrl.Options{Scheme: w.Scheme,
		Controller: kubetest.Controllers(), Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, statuscontroller.SetupWithManager(mgr, statuscontroller.Options{
		Namespace: cluster.DefaultNamespace, Mode: cluster.Full, Version: "v1"}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	require.NoError(t, w.Client.Patch(t.Context(), &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{
		Name: "version"}}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"overrides":[{"group":"apps",`+
		`"kind":"Deployment","namespace":"`+cluster.DefaultNamespace+`","name":"machine-config-operator",`+
		`"unmanaged":true}]}}`))))
	w.follows("4.21.0")
	w.operatorSays("Degraded", configv1.ConditionFalse, "AsExpected")
	w.operatorSays("Progressing", configv1.ConditionFalse, "AsExpected")

	w.operator("4.21.1", "while :; do sleep 0.1; done")
	w.release("4.21.1")
	w.operatorSays("Progressing", configv1.ConditionTrue, "ControllersReport", "ConfigMap dayone-release",
		"ReleaseRendering", "following release 4.21.1")
	w.operatorSays("Degraded", configv1.ConditionFalse, "AsExpected")

	w.operator("4.21.2", `die "error running MCC[BOOTSTRAP]: no such template"`)
	w.release("4.21.2")
	w.operatorSays("Degraded", configv1.ConditionTrue, "ControllersReport", "ConfigMap dayone-release",
		"ReleaseRenderFailed", "no such template")
	w.operatorSays("Progressing", configv1.ConditionFalse, "AsExpected")
	w.operatorSays("Available", configv1.ConditionTrue, "AsExpected")

	w.operator("4.21.2", "")
	w.follows("4.21.2")
	w.operatorSays("Degraded", configv1.ConditionFalse, "AsExpected")
	w.operatorSays("Progressing", configv1.ConditionFalse, "AsExpected")
	w.operatorSays("Upgradeable", configv1.ConditionFalse, "InTheMachineConfigOperatorsPlace")
	w.stop()
}
