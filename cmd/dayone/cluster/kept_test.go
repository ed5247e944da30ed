package cluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// TestLogsOfABuildBesideMCO reads what an advisor keeps, with the build and without it.
func TestLogsOfABuildBesideMCO(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an API server, which is left out with -short")
	}
	w := &logsWorld{t: t, env: shared.New(t)}
	w.create("{}")
	require.NoError(t, w.env.Client.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.AdvisorNamespace}}))
	w.build("worker-1", machineosbuild.Failed, machineosbuild.Cause{})
	keep := func(name, log string) {
		packed, err := mcobuild.Pack(log)
		require.NoError(t, err)
		r := mcobuild.Record{Build: name, Config: "worker", Pool: "worker", Summary: "Cause (user): no such package.\n",
			Log: packed, Attempts: mcobuild.Attempts{UID: "u", Outcome: "Failed"},
			Cause: &mcobuild.Cause{Failure: build.Failure{Class: build.ClassUser, Message: "no such package", Line: 3}}}
		m, err := r.ConfigMap(cluster.AdvisorNamespace)
		require.NoError(t, err)
		require.NoError(t, w.env.Client.Create(t.Context(), m))
	}
	keep("worker-1", "STEP 3/3\nno such package\n")
	keep("worker-0", "the build before\n")
	kubeconfig := w.env.Kubeconfig(t)
	logs := func(args ...string) (int, string, string) {
		return dayone(t, append([]string{"cluster", "logs", "worker", "--kubeconfig", kubeconfig}, args...)...)
	}
	code, out, errs := logs()
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Contains(t, out, "STEP 3/3\nno such package\n")
	assert.Contains(t, out, "Cause (user): no such package.")
	code, out, errs = logs("--build", "worker-0")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Contains(t, out, "the build before", "MCO has deleted this build")
	code, out, errs = logs("-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, "worker-1", got["machineOSBuild"])
	assert.Contains(t, got["text"], "no such package")
	assert.InDelta(t, 3, got["cause"].(map[string]any)["line"], 0)

	s := &clusterinstall.Status{Namespace: cluster.AdvisorNamespace, Pools: []clusterinstall.Pool{{Pool: "worker"}}}
	require.NoError(t, explainPools(t.Context(), w.env.Client, s))
	assert.Equal(t, "BuildFailed", s.Pools[0].State)
	assert.Contains(t, s.Pools[0].Detail, "line 3")
}
