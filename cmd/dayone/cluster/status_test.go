package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

// watchesStatus sees a node come while status looks, as text and as JSON, a line each look.
func watchesStatus(t *testing.T, e *kubetest.Env, kubeconfig string) {
	var errs bytes.Buffer // read after status has ended
	watch := func(more ...string) (lines *bufio.Scanner, end func() int) {
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		code := make(chan int, 1)
		go func() {
			args := append([]string{"cluster", "--kubeconfig", kubeconfig, "status", "--nodes", "--watch"}, more...)
			code <- cli.Run(ctx, cli.NewRoot("dayone", "the program under test", "v0", Command("v0")), args, in, &errs)
			_ = in.Close()
		}()
		return bufio.NewScanner(out), func() int {
			cancel()
			go func() { _, _ = io.Copy(io.Discard, out) }() // a look that is under way is written to its end
			return <-code
		}
	}
	labels := map[string]string{"pool": "watched"}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "watched"}, Spec: mcfgv1.MachineConfigPoolSpec{
		NodeSelector:          &metav1.LabelSelector{MatchLabels: labels},
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: labels}}}
	pool.Spec.Configuration.Name = "rendered-watched-a"
	first := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "watched-0", Labels: labels}}
	second := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "watched-1", Labels: labels}}
	for _, o := range []client.Object{pool, first} {
		require.NoError(t, e.Client.Create(t.Context(), o))
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{pool, first, second} {
			assert.NoError(t, e.Client.Delete(context.Background(), o))
		}
	})
	text, endText := watch()
	require.True(t, text.Scan(), &errs)
	assert.Contains(t, text.Text(), "dayone v0 in namespace")

	require.NoError(t, e.Client.Create(t.Context(), second))
	for !strings.Contains(text.Text(), " watched-1 ") {
		require.True(t, text.Scan(), "status goes on until the second node is there")
	}
	assert.Equal(t, cli.ExitOK, endText(), "the user stopped it")

	data, endData := watch("-o", "json")
	for range 2 {
		require.True(t, data.Scan())
		var look struct {
			Kind     string
			Rollouts struct {
				Pools []struct {
					Pool     string
					Verdicts []struct{ Node string }
				}
			}
		}
		require.NoError(t, json.Unmarshal(data.Bytes(), &look), "a look is one line")
		assert.Equal(t, "ClusterStatus", look.Kind)
		require.NotEmpty(t, look.Rollouts.Pools)
		assert.Equal(t, "watched", look.Rollouts.Pools[0].Pool)
		assert.Equal(t, "watched-0", look.Rollouts.Pools[0].Verdicts[0].Node)
	}
	assert.Equal(t, cli.ExitOK, endData())
}

// saysWhoIsDead has a pool whose image was up to date when builder and operator ended, and was edited after that.
func saysWhoIsDead(t *testing.T, e *kubetest.Env, must func(...string) string) {
	t.Helper()
	status := func() (s clusterinstall.Status) {
		t.Helper()
		out, _, _ := strings.Cut(must("status", "-o", "json"), "\n}\n")
		require.NoError(t, json.Unmarshal([]byte(out+"}"), &s))
		return s
	}
	settings := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cluster.MachineConfiguration}}
	require.NoError(t, e.Client.Status().Patch(t.Context(), settings, client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"`+manifests.ConditionBuilderAvailable+`","status":"True","reason":"Running",
			"message":"1 of 1","lastTransitionTime":"2026-01-31T22:00:00Z"}]}}`))))
	var mosc mcfgv1.MachineOSConfig
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Name: "worker"}, &mosc))
	mosc.Status.ObservedGeneration = mosc.Generation
	for _, kind := range []string{manifests.ConditionOptedIn, "Available"} {
		mosc.Status.Conditions = append(mosc.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
			Reason: "UpToDate", LastTransitionTime: metav1.Now()})
	}
	require.NoError(t, e.Client.Status().Update(t.Context(), &mosc))
	assert.Equal(t, "Available", status().Pools[0].State)

	mosc.Spec.RenderedImagePushSpec = "registry.example.test/os/image:next"
	require.NoError(t, e.Client.Update(t.Context(), &mosc))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.Controller}}
	scale := func(copies string) {
		t.Helper()
		require.NoError(t, e.Client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"replicas":`+copies+`}}`))))
	}
	scale("0")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		s := status()
		assert.Equal(c, "Unseen", s.Pools[0].State)
		assert.Contains(c, s.Pools[0].Detail, "has not looked at the latest change yet")
		assert.False(c, s.Programs[0].Available, s.Programs[0].Detail)
		assert.Equal(c, "has 0 of 0 copies available: scale it up", s.Programs[0].Detail)
		assert.False(c, s.Programs[1].Available, s.Programs[1].Detail)
		if assert.Len(c, s.Findings, 1) {
			assert.Contains(c, s.Findings[0], "dayone-controller does not run")
		}
	}, clusterWait, clusterEvery)
	scale("2")
}

// TestShowRollouts has a pool without a MachineOSConfig that cannot be rendered, one whose MachineOSConfig has said why
// already, a node that is drained, and one of no pool.
func TestShowRollouts(t *testing.T) {
	plan := &forecast.Plan{Unmanaged: []string{"stray"}, Pools: []forecast.Pool{
		{Plan: rollout.Plan{Pool: "infra"}, Conditions: []string{"ImageBuildDegraded (BuildFailed): no Secret"}},
		{Plan: rollout.Plan{Pool: "worker", Verdicts: []rollout.Verdict{{Node: "w0", Phase: rollout.PhaseUpdating}}},
			Conditions: []string{"RenderDegraded (RenderRefused): 9.9.9 is not understood"}}}}
	drained := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "w0"}}
	drained.Status.Conditions = []metav1.Condition{{Type: string(mcfgv1.MachineConfigNodeUpdateDrained),
		Status: metav1.ConditionFalse, Reason: "Draining", Message: "1 pods remain"}}
	b := board.Board{Pools: []board.Row{{Name: "infra", Progress: board.Failed, Text: "BuildFailed: no Secret"}}}
	showRollouts(&b, plan, &rollout.Cluster{Records: []*mcfgv1.MachineConfigNode{drained}}, time.Now())
	require.Len(t, b.Pools, 2)
	assert.Empty(t, b.Pools[0].Next, "it is said once")
	assert.Equal(t, "RenderDegraded (RenderRefused): 9.9.9 is not understood", b.Pools[1].Next)
	assert.Equal(t, board.Failed, b.Pools[1].Progress)
	require.Len(t, b.Nodes, 1)
	assert.Equal(t, "Draining: 1 pods remain", b.Nodes[0].Says)
	assert.Equal(t, []string{"no pool selects these nodes, so that no controller updates them: stray"}, b.Notes)
}
