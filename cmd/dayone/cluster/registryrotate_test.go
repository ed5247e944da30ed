package cluster

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/registrycontroller"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/poolaccounts"
	replicas "dayone.dev/dayone/registry/wanted"
)

const rotatedRegistry = "r.example.com:22626"

// rotation is a cluster with the real controller. A node of each pool is played: it takes its account, and that of the
// control plane says that its registry accepts what the controller has published.
type rotation struct {
	*testing.T
	e *kubetest.Env
	// cut: the registry is not reached.
	cut sync.Mutex
	// lags: the worker does not take over what to trust.
	lags atomic.Bool
}

func newRotation(t *testing.T) *rotation {
	w := &rotation{T: t, e: shared.New(t)}
	push, err := credentials.Encode(credentials.Account{Username: "push", Password: "p"}, rotatedRegistry)
	require.NoError(t, err)
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryPush},
			Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: push}}}
	for _, pool := range []string{"master", "worker"} {
		role := map[string]string{"node-role.kubernetes.io/" + pool: ""}
		objects = append(objects, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool},
			Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: role}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pool + "-0", Labels: role}})
	}
	for _, o := range objects {
		require.NoError(t, client.IgnoreAlreadyExists(w.e.Client.Create(t.Context(), o)))
		if n, ok := o.(*corev1.Node); ok {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			require.NoError(t, w.e.Client.Status().Update(t.Context(), n))
		}
	}
	return w
}

// run starts the controller and plays the nodes until the test ends.
func (w *rotation) run() {
	mgr, err := ctrl.NewManager(w.e.Config, ctrl.Options{Scheme: w.e.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: kubetest.Controllers()})
	require.NoError(w, err)
	require.NoError(w, registrycontroller.SetupWithManager(mgr, registrycontroller.Options{Registry: rotatedRegistry,
		Namespace: cluster.DefaultNamespace}))
	ctx, cancel := context.WithCancel(w.Context())
	var work sync.WaitGroup
	w.Cleanup(func() { cancel(); work.Wait() })
	work.Go(func() { assert.NoError(w, mgr.Start(ctx)) })
	for _, name := range []string{"master-0", "worker-0"} {
		root := w.TempDir()
		own, err := poolaccounts.OpenNode(root, name)
		require.NoError(w, err)
		work.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				w.play(ctx, name, root, own)
			}
		})
	}
}

// play is one look of a node. What fails is done again with the next one.
func (w *rotation) play(ctx context.Context, name, root string, own *poolaccounts.Node) {
	var n corev1.Node
	if w.e.Client.Get(ctx, types.NamespacedName{Name: name}, &n) != nil {
		return
	}
	before := n.DeepCopy()
	_, err := own.Take(poolaccounts.Read[poolaccounts.Sealed](n.Annotations[manifests.AnnotationRegistryAccount]))
	assert.NoError(w, err)
	sealed := poolaccounts.Read[poolaccounts.Sealed](n.Annotations[manifests.AnnotationRegistryShared])
	_, err = own.TakeShared(root, sealed)
	assert.NoError(w, err)
	says := own.Word()
	says.Trusts = w.trusts(ctx, name, n.Annotations[manifests.AnnotationRegistryKey])
	word, err := poolaccounts.Annotation(says)
	assert.NoError(w, err)
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationRegistryKey, word)
	if name == "master-0" && w.cut.TryLock() {
		defer w.cut.Unlock()
		var m corev1.ConfigMap
		if w.e.Client.Get(ctx, types.NamespacedName{Namespace: cluster.DefaultNamespace, Name: cluster.RegistryName},
			&m) == nil {
			report := replicas.Report{Accounts: replicas.AccountsHash([]byte(m.Data[replicas.AccountsFile])),
				Shared: poolaccounts.ReadShared(filepath.Join(root, replicas.Dir)).Hash()}
			text, err := report.Encode()
			assert.NoError(w, err)
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, manifests.AnnotationRegistry, text)
		}
	}
	_ = w.e.Client.Patch(ctx, &n, client.MergeFrom(before))
}

// trusts is what a node has of the cluster's CAs.
func (w *rotation) trusts(ctx context.Context, name, said string) (out []string) {
	if name == "worker-0" && w.lags.Load() {
		return poolaccounts.Read[poolaccounts.Word](said).Trusts
	}
	var c mcfgv1.ControllerConfig
	if w.e.Client.Get(ctx, types.NamespacedName{Name: render.ControllerConfigName}, &c) != nil {
		return nil
	}
	for _, b := range c.Spec.ImageRegistryBundleUserData {
		for _, cert := range certs.Bundle(b.Data) {
			out = append(out, certs.Fingerprint(cert))
		}
	}
	return out
}

func (w *rotation) accounts() map[string][]string {
	p, err := registrystatus.ReadPublished(w.Context(), w.e.Client, cluster.DefaultNamespace)
	if err != nil {
		return nil
	}
	return p.Accounts
}

// TestRegistryRotate asks the real controller for other accounts through the command.
func TestRegistryRotate(t *testing.T) {
	w := newRotation(t)
	kubeconfig := w.e.Kubeconfig(t)
	do := func(args ...string) (int, string, string) {
		return dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig, "registry", "rotate"}, args...)...)
	}
	code, _, errs := do()
	assert.Equal(t, cli.ExitUsage, code)
	assert.Contains(t, errs, "--pool POOL, --builders or --all")
	code, _, errs = do("--all")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "--cluster-registry", "there are no registries")
	w.run()
	require.Eventually(t, func() bool {
		a := w.accounts()
		return len(a["master"]) == 1 && len(a["worker"]) == 1 && len(a[""]) == 1
	}, clusterWait, clusterEvery)
	first := w.accounts()
	code, _, errs = do("--pool", "infra")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "pool infra: there is no account; these have one: builders, pool master, pool worker")

	code, out, errs := do("--pool", "worker", "--wait", "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	var done rotated
	require.NoError(t, json.Unmarshal([]byte(out), &done))
	now := w.accounts()
	assert.Equal(t, []replacedAccount{{Pool: "worker", Before: first["worker"], Now: now["worker"][0]}}, done.Accounts)
	assert.NotEqual(t, first["worker"], now["worker"])
	assert.Equal(t, first["master"], now["master"], "it is replaced alone")
	assert.Equal(t, first[""], now[""])
	assert.Contains(t, errs, "pool worker: "+first["worker"][0]+" is refused, "+now["worker"][0]+" is in use")

	w.cut.Lock()
	code, out, errs = do("--all")
	require.Equal(t, cli.ExitOK, code, errs)
	assert.Equal(t, 3, strings.Count(out, "asked: see AccountsCurrent"), out)
	code, _, errs = do("--pool", "worker", "--wait", "--timeout", "5s")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "waits: ")
	assert.Contains(t, errs, "the registries of master-0 have not taken the new account over")
	assert.Contains(t, errs, "not replaced after 5s")
	w.cut.Unlock()
	require.Eventually(t, func() bool {
		a := w.accounts()
		for owner, before := range now {
			if len(a[owner]) != 1 || a[owner][0] == before[0] {
				return false
			}
		}
		return true
	}, clusterWait, clusterEvery, "the builders' request is seen with the pools'")
}
