package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

// others is an override that the admin has set for something else.
var others = configv1.ComponentOverride{Kind: "Deployment", Group: "apps", Namespace: "elsewhere", Name: "other",
	Unmanaged: true}

// mcoOverride takes the Machine Config Operator out of the cluster-version operator's hands.
var mcoOverride = configv1.ComponentOverride{Kind: "Deployment", Group: "apps", Namespace: cluster.DefaultNamespace,
	Name: "machine-config-operator", Unmanaged: true}

// openshift is a cluster with a Machine Config Operator and who keeps it there.
func openshift(t *testing.T) *kubetest.Env {
	t.Helper()
	e := kubetest.Start(t, kubetest.Options{ControllerManager: true, CRDPaths: kubetest.APICRDs(t,
		"config/v1/*_clusterversions-Default", "config/v1/*_clusteroperators", "security/v1/*_securitycontextconstraints")})
	podsRun(t, e)
	machineConfigOperator(t, e)
	require.NoError(t, e.Client.Create(t.Context(), &configv1.ClusterVersion{
		ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Spec: configv1.ClusterVersionSpec{ClusterID: "5a8b2c9c-6c7b-4d3f-9a6c-0f6a1c2d3e4f",
			Overrides: []configv1.ComponentOverride{others}}}))
	settings := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"managementState": string(operatorv1.Managed)}}}
	settings.SetGroupVersionKind(operatorv1.GroupVersion.WithKind("MachineConfiguration"))
	settings.SetName(cluster.MachineConfiguration)
	require.NoError(t, e.Client.Create(t.Context(), settings))
	return e
}

// operatorsWork stands in for the cluster-version operator and the Machine Config Operator until the test ends: the
// first one observes its object and starts the second one's operator unless an override says otherwise; that one brings
// its other workloads back.
func operatorsWork(t *testing.T, e *kubetest.Env) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(clusterEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			operate(ctx, e.Client)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
}

func operate(ctx context.Context, c client.Client) {
	var v configv1.ClusterVersion
	if c.Get(ctx, client.ObjectKey{Name: "version"}, &v) != nil {
		return
	}
	if v.Status.ObservedGeneration != v.Generation {
		_ = c.Status().Patch(ctx, &v, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{`+
			`"observedGeneration":%d,"versionHash":"h","desired":{"version":"4.22.0","image":"r.test/release:1"},`+
			`"availableUpdates":[]}}`, v.Generation)))
	}
	managed := true
	for _, o := range v.Spec.Overrides {
		managed = managed && o != mcoOverride
	}
	operator := "machine-config-operator"
	if managed {
		back(ctx, c, operator)
	}
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: operator}
	if c.Get(ctx, key, &d) != nil || *d.Spec.Replicas == 0 {
		return
	}
	back(ctx, c, "machine-config-controller")
	back(ctx, c, "machine-os-builder")
	for _, name := range []string{"machine-config-daemon", "machine-config-server"} {
		var set appsv1.DaemonSet
		if c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, &set) == nil &&
			len(set.Spec.Template.Spec.NodeSelector) != 1 {
			set.Spec.Template.Spec.NodeSelector = operatorPod(nil).Spec.NodeSelector
			_ = c.Update(ctx, &set)
		}
	}
}

// back scales a Deployment to one.
func back(ctx context.Context, c client.Client, name string) {
	var d appsv1.Deployment
	if c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: name}, &d) == nil && *d.Spec.Replicas != 1 {
		*d.Spec.Replicas = 1
		_ = c.Update(ctx, &d)
	}
}

var errKilled = errors.New("killed")

// killedAfter gives a client that does so many writes and none after them.
func killedAfter(t *testing.T, e *kubetest.Env, writes int) client.Client {
	t.Helper()
	under, err := client.NewWithWatch(e.Config, client.Options{Scheme: e.Scheme})
	require.NoError(t, err)
	left := func(dry bool) error {
		if writes--; !dry && writes < 0 {
			return errKilled
		} else if dry {
			writes++
		}
		return nil
	}
	return interceptor.NewClient(under, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := left(false); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := left(false); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			if err := left(false); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration,
			options ...client.ApplyOption) error {
			var set client.ApplyOptions
			set.ApplyOptions(options)
			if err := left(len(set.DryRun) > 0); err != nil {
				return err
			}
			return c.Apply(ctx, o, options...)
		},
	})
}

func TestTakingOverFromTheMachineConfigOperator(t *testing.T) {
	e := openshift(t)
	operatorsWork(t, e)
	before := settled(t, e)
	kubeconfig := e.Kubeconfig(t)
	do := func(args ...string) (int, string, string) {
		t.Helper()
		return dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig}, args...)...)
	}
	install := []string{"install", "--image", "r.test/all:1", "--node-agent", "--replicas", "1"}
	code, _, errs := do(append(install, "--mode", "full")...)
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "run dayone cluster install --mode full --take-over")
	code, _, _ = do(append(install, "--take-over", "--mode", "advisor")...)
	assert.Equal(t, cli.ExitUsage, code)
	code, _, errs = do(append(install, "--take-over")...)
	assert.Equal(t, cli.ExitUsage, code, "it asks")
	for _, want := range append(clusterinstall.Lost(), "pass --yes") {
		assert.Contains(t, errs, want)
	}
	t.Run("not while nodes are updated", func(t *testing.T) {
		setUpdating(t, e, corev1.ConditionTrue)
		code, _, errs := do(append(install, "--take-over", "--yes")...)
		assert.Equal(t, cli.ExitFailed, code)
		assert.Contains(t, errs, "pool worker is being updated")
		setUpdating(t, e, corev1.ConditionFalse)
	})
	same(t, e, before)

	target := func(c client.Client) clusterinstall.Target {
		return clusterinstall.Target{Client: c, Config: e.Config, Namespace: cluster.DefaultNamespace, Limit: clusterWait,
			Out: io.Discard}
	}
	options := clusterinstall.Options{TakeOver: true, Options: cluster.Options{Mode: cluster.Full, Replicas: 1,
		NodeAgent: true, Images: cluster.Images{Controller: "r.test/all:1", Builder: "r.test/all:1", Daemon: "r.test/all:1"}}}
	// Whatever is done before the end, the next one goes on: noted, override, three Deployments, two DaemonSets, the rest.
	for _, writes := range []int{0, 1, 2, 2, 2, 3, 3, 10, 40} {
		require.ErrorIs(t, clusterinstall.Install(t.Context(), target(killedAfter(t, e, writes)), options), errKilled)
	}
	code, _, errs = do(append(install, "--take-over", "--yes")...)
	require.Equal(t, cli.ExitOK, code, errs)
	aside(t, e)
	constraints := &unstructured.Unstructured{}
	constraints.SetAPIVersion("security.openshift.io/v1")
	constraints.SetKind("SecurityContextConstraints")
	require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: cluster.BuildServiceAccount}, constraints),
		"OpenShift admits build pods")

	t.Run("an override that is removed by hand is a finding", func(t *testing.T) {
		var v configv1.ClusterVersion
		require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: "version"}, &v))
		v.Spec.Overrides = []configv1.ComponentOverride{others}
		require.NoError(t, e.Client.Update(t.Context(), &v))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, out, _ := do("status", "-o", "json")
			var s clusterinstall.Status
			assert.NoError(c, json.Unmarshal([]byte(out), &s))
			assert.Contains(c, strings.Join(s.Findings, " "), "machine-config-daemon")
		}, clusterWait, clusterEvery)
		_, out, _ := do("status")
		assert.Contains(t, out, "finding: the Machine Config Operator's own controllers run here")
		code, _, errs := do("upgrade")
		assert.Equal(t, cli.ExitFailed, code)
		assert.Contains(t, errs, "own controllers run here")
		code, _, errs = do(append(install, "--take-over", "--yes")...)
		require.Equal(t, cli.ExitOK, code, errs)
		aside(t, e)
	})

	for _, writes := range []int{0, 5, 50, 10, 1, 1, 1} {
		require.ErrorIs(t, clusterinstall.Uninstall(t.Context(), target(killedAfter(t, e, writes)), false), errKilled)
	}
	code, _, errs = do("uninstall", "--yes")
	require.Equal(t, cli.ExitOK, code, errs)
	same(t, e, before)
}

// aside checks that the Machine Config Operator is out of the way, and the admin's override in place.
func aside(t *testing.T, e *kubetest.Env) {
	t.Helper()
	var v configv1.ClusterVersion
	require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: "version"}, &v))
	assert.Equal(t, []configv1.ComponentOverride{others, mcoOverride}, v.Spec.Overrides)
	var pods corev1.PodList
	require.NoError(t, e.Client.List(t.Context(), &pods, client.InNamespace(cluster.DefaultNamespace),
		client.HasLabels{"k8s-app"}))
	assert.Empty(t, pods.Items)
	var namespace corev1.Namespace
	require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: cluster.DefaultNamespace}, &namespace))
	assert.Equal(t, "privileged", namespace.Labels["pod-security.kubernetes.io/enforce"], "the release's own label")
}

// setUpdating writes what the operator says of its pool.
func setUpdating(t *testing.T, e *kubetest.Env, status corev1.ConditionStatus) {
	t.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: "worker"}, pool))
	pool.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: mcfgv1.MachineConfigPoolUpdating, Status: status,
		LastTransitionTime: metav1.Now()}}
	require.NoError(t, e.Client.Status().Update(t.Context(), pool))
}
