package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/clusterinstall"
)

const (
	clusterWait  = 3 * time.Minute
	clusterEvery = 50 * time.Millisecond
)

func TestKubectlPlugin(t *testing.T) {
	for _, c := range []struct {
		name string
		argv []string
		is   bool
	}{
		{"kubectl's plugin", []string{"/usr/bin/kubectl-dayone", "status"}, true},
		{"on another system", []string{"kubectl-dayone.exe"}, true},
		{"the program", []string{"/usr/bin/dayone", "status"}, false},
		{"nothing", nil, false},
	} {
		assert.Equal(t, c.is, IsPlugin(c.argv), c.name)
	}
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"usage", "  kubectl dayone why NODE|POOL", []string{"why", "--help"}},
		{"a command below", "  kubectl dayone registry status", []string{"registry", "status", "-h"}},
		{"an error", "kubectl dayone: unknown command \"stats\"; did you mean status? kubectl dayone help lists them",
			[]string{"stats"}},
		{"one below", "kubectl dayone help registry lists them", []string{"registry", "foo"}},
		{"flags of dayone cluster", "--kubeconfig", []string{"status", "--help"}},
		{"version", "v0 (go", []string{"version"}},
		{"YAML", "kind: Version", []string{"version", "-o", "yaml"}},
	} {
		var out bytes.Buffer
		cli.Run(t.Context(), Plugin("v0"), c.args, &out, &out)
		assert.Contains(t, out.String(), c.says, c.name)
	}
}

func TestDryRunIsOffline(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	code, out, errs := dayone(t, "cluster", "install", "--dry-run", "-o", "yaml", "--image", "r.test/all:1", "--image",
		"builder=r.test/builder:1")
	require.Equal(t, cli.ExitOK, code, errs)
	documents := strings.Split(out, "---\n")[1:]
	assert.Greater(t, len(documents), 40)
	assert.Contains(t, out, "image: r.test/all:1")
	assert.Contains(t, out, "--builder-image=r.test/builder:1")
	code, out, errs = dayone(t, "cluster", "install", "--dry-run", "-o", "json", "--image", "r.test/all:1")
	require.Equal(t, cli.ExitOK, code, errs)
	var list struct{ Items []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	assert.Len(t, list.Items, len(documents))
}

// On OpenShift install finds out that pods are admitted by constraints; printed objects cannot.
func TestManifestsForOpenShift(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	kinds := func(args ...string) map[string]int {
		t.Helper()
		code, out, errs := dayone(t, append([]string{"cluster", "manifests", "-o", "json", "--image", "r.test/all:1"},
			args...)...)
		require.Equal(t, cli.ExitOK, code, errs)
		var list struct {
			Items []struct {
				Kind     string
				Metadata struct{ Name string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		found := map[string]int{}
		for _, item := range list.Items {
			found[item.Kind]++
			if strings.HasSuffix(item.Metadata.Name, "-scc") {
				found["right to use a constraint"]++
			}
		}
		return found
	}
	plain := kinds()
	for _, kind := range []string{"SecurityContextConstraints", "right to use a constraint", "PrometheusRule"} {
		assert.Zero(t, plain[kind], kind)
	}
	for _, c := range []struct {
		mode                string
		args                []string
		constraints, rights int
	}{{"advisor", nil, 0, 1}, {"builder", nil, 1, 3}, {"full", []string{"--node-agent"}, 1, 6}} {
		t.Run(c.mode, func(t *testing.T) {
			found := kinds(append([]string{"--openshift", "--mode", c.mode}, c.args...)...)
			assert.Equal(t, c.constraints, found["SecurityContextConstraints"])
			assert.Equal(t, c.rights, found["right to use a constraint"])
			assert.Positive(t, found["ServiceMonitor"])
			assert.Positive(t, found["PrometheusRule"])
		})
	}
}

func TestClusterUsageErrors(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an image is needed", []string{"install", "--dry-run"}, cli.ExitUsage, "--image is required"},
		{"an image of an unknown program", []string{"install", "--dry-run", "--image", "mixer=r.test/a"}, cli.ExitUsage,
			"controller=REF"},
		{"a reference with a " +
			"space", []string{"install", "--dry-run", "--image", "a b"}, cli.ExitUsage, "no reference"},
		{"an unknown form of output", []string{"install", "--dry-run", "-o", "xml"}, cli.ExitUsage, "text, json " +
			"or yaml"},
		{"an unknown command", []string{"explode"}, cli.ExitUsage, "unknown command"},
		{"a kubeconfig that is not there", []string{"status", "--kubeconfig", "/nowhere"}, cli.ExitFailed, "/nowhere"},
		{"a cluster that does not " +
			"answer", []string{"status", "--kubeconfig", deadCluster(t)}, cli.ExitFailed, "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, errs := dayone(t, append([]string{"cluster"}, c.args...)...)
			assert.Equal(t, c.code, code)
			assert.Contains(t, errs, c.want)
		})
	}
}

func deadCluster(t *testing.T) string {
	return writeKubeconfig(t, &rest.Config{Host: "https://127.0.0.1:1"})
}

func writeKubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "c",
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData,
			CertificateAuthority: cfg.CAFile}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: cfg.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}}}, file))
	return file
}

func TestKubectlReadsTheKustomizeDirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the tests' own kubectl, which is left out with -short")
	}
	dir := filepath.Join(t.TempDir(), "k")
	code, _, errs := dayone(t, "cluster", "manifests", "--kustomize", dir, "--image", "r.test/all:1")
	require.Equal(t, cli.ExitOK, code, errs)
	assets, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), "kustomize", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	_, plain, _ := dayone(t, "cluster", "manifests", "--image", "r.test/all:1")
	assert.Equal(t, strings.Count(plain, "\nkind: "), strings.Count(string(out), "\nkind: "))
	code, _, errs = dayone(t, "cluster", "manifests", "--kustomize", dir, "--image", "r.test/all:1")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "is not empty")
}

// podsRun stands in for the kubelet until the test ends: pods are ready, and gone when they are told to end.
func podsRun(t *testing.T, e *kubetest.Env) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(clusterEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			var pods corev1.PodList
			if e.Client.List(ctx, &pods) == nil {
				for i := range pods.Items {
					p := &pods.Items[i]
					if p.DeletionTimestamp != nil {
						_ = e.Client.Delete(ctx, p, client.GracePeriodSeconds(0))
						continue
					}
					if p.Status.Phase != corev1.PodRunning {
						p.Status.Phase = corev1.PodRunning
						p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
							LastTransitionTime: metav1.Now()}}
						_ = e.Client.Status().Update(ctx, p)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
}

func TestAnInstallationsWholeLife(t *testing.T) {
	e := kubetest.Start(t, kubetest.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}, ControllerManager: true})
	podsRun(t, e)
	kubeconfig := e.Kubeconfig(t)
	do := func(args ...string) (int, string, string) {
		t.Helper()
		return dayone(t, append([]string{"cluster", "--kubeconfig", kubeconfig}, args...)...)
	}
	must := func(args ...string) string {
		t.Helper()
		code, out, errs := do(args...)
		require.Equal(t, cli.ExitOK, code, errs)
		return out + errs
	}
	assert.Contains(t, must("status"), "is not installed")
	code, _, errs := do("upgrade")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs, "run dayone cluster install")

	text := must("install", "--image", "r.test/all:1", "--image-pull-secret", "pull", "--builder-arg=--history=5")
	assert.Contains(t, text, "is installed in namespace "+cluster.DefaultNamespace)
	before := versionsOf(t, e)
	must("install", "--image", "r.test/all:1", "--image-pull-secret", "pull", "--builder-arg=--history=5")
	assert.Equal(t, before, versionsOf(t, e), "a second run changes nothing")
	installed := func(args ...string) bool {
		t.Helper()
		code, out, errs := do(append(args, "-o", "json")...)
		require.Equal(t, cli.ExitOK, code, errs)
		var s struct {
			Kind      string
			Installed bool
		}
		require.NoError(t, json.Unmarshal([]byte(out), &s), "%q", out)
		assert.Equal(t, "ClusterStatus", s.Kind)
		return s.Installed
	}
	assert.True(t, installed("upgrade", "--no-wait"))
	assert.Contains(t, must("status", "--nodes"), "there are no MachineConfigPools yet", "it is no error")

	t.Run("upgrade keeps what was asked for and removes what older versions had", func(t *testing.T) {
		key := types.NamespacedName{Namespace: cluster.DefaultNamespace, Name: "dayone-inventory"}
		var noted corev1.ConfigMap
		require.NoError(t, e.Client.Get(t.Context(), key, &noted))
		var list []map[string]string
		require.NoError(t, json.Unmarshal([]byte(noted.Data["objects"]), &list))
		for name, labels := range map[string]map[string]string{"old-ours": {cluster.LabelManagedBy: cluster.ManagedBy},
			"old-taken-over": nil} {
			require.NoError(t, e.Client.Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, Labels: labels}}))
			list = append(list, map[string]string{"apiVersion": "v1", "kind": "ConfigMap", "namespace": key.Namespace,
				"name": name})
		}
		raw, err := json.Marshal(list)
		require.NoError(t, err)
		noted.Data["objects"] = string(raw)
		require.NoError(t, e.Client.Apply(t.Context(), applycorev1.ConfigMap(key.Name, key.Namespace).
			WithLabels(noted.Labels).WithData(noted.Data), client.FieldOwner("dayone-cluster")))
		must("upgrade", "--image", "builder=r.test/builder:2")
		assert.True(t, apierrors.IsNotFound(e.Client.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace,
			Name: "old-ours"}, &corev1.ConfigMap{})))
		require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: "old-taken-over"},
			&corev1.ConfigMap{}))
		var d appsv1.Deployment
		require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: cluster.Controller},
			&d))
		assert.Equal(t, "r.test/all:1", d.Spec.Template.Spec.Containers[0].Image)
		assert.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--builder-image=r.test/builder:2")
		assert.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--builder-arg=--history=5")
		var account corev1.ServiceAccount
		require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: cluster.Controller},
			&account))
		assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, account.ImagePullSecrets, "what is not said stays")
	})

	t.Run("status is for people and for machines", func(t *testing.T) {
		require.NoError(t, e.Client.Create(t.Context(), machineOSConfig("worker")))
		assert.Contains(t, must("status"), "worker")
		var s clusterinstall.Status
		require.NoError(t, json.Unmarshal([]byte(must("status", "-o", "json")), &s))
		assert.True(t, s.Installed)
		assert.Equal(t, cluster.Full, s.Mode, "where no Machine Config Operator is")
		assert.Equal(t, "worker", s.Pools[0].Pool)
		assert.True(t, s.Programs[0].Available)
	})

	t.Run("status does not repeat what a dead program said", func(t *testing.T) { saysWhoIsDead(t, e, must) })

	t.Run("status of nodes, again and again", func(t *testing.T) { watchesStatus(t, e, kubeconfig) })

	t.Run("registries of the control plane", func(t *testing.T) { showsRegistries(t, e, do) })

	t.Run("a second installation elsewhere is refused", func(t *testing.T) {
		code, _, errs := do("install", "--image", "r.test/all:1", "-n", "elsewhere")
		assert.Equal(t, cli.ExitFailed, code)
		assert.Contains(t, errs, "uninstall that one first")
	})

	t.Run("who has not the rights is told so", func(t *testing.T) {
		require.NoError(t, e.Client.Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nobody"}}))
		weak := writeKubeconfig(t, e.As(t, "default", "nobody"))
		for _, args := range [][]string{{"install", "--image", "r.test/all:1"}, {"status"}, {"uninstall", "--yes"}} {
			code, _, errs := dayone(t, append([]string{"cluster", "--kubeconfig", weak}, args...)...)
			assert.Equal(t, cli.ExitFailed, code)
			assert.Contains(t, errs, "forbidden", args)
		}
	})

	t.Run("uninstall asks", func(t *testing.T) {
		require.ErrorContains(t, confirm(strings.NewReader("\n"), io.Discard, "uninstall"), "nothing was changed")
		require.NoError(t, confirm(strings.NewReader("y\n"), io.Discard, "uninstall"))
	})

	t.Run("uninstall leaves what is the users'", func(t *testing.T) {
		push := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "push"}}
		require.NoError(t, e.Client.Create(t.Context(), push))
		copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: cluster.PullSecretCopy, Labels: map[string]string{cluster.LabelManagedBy: cluster.ManagedBy}}}
		require.NoError(t, e.Client.Create(t.Context(), copied))
		policy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1",
			"kind": "ClusterImagePolicy", "metadata": map[string]any{"name": cluster.ImagePolicy}, "spec": map[string]any{
				"scopes": []any{"r.test/os"}, "policy": map[string]any{"rootOfTrust": map[string]any{"policyType": "PublicKey",
					"publicKey": map[string]any{"keyData": base64.StdEncoding.EncodeToString([]byte(
						"-----BEGIN PUBLIC KEY-----\nMA==\n-----END PUBLIC KEY-----"))}}}}}}
		require.NoError(t, e.Client.Create(t.Context(), policy))
		said := must("uninstall", "--yes")
		assert.Contains(t, said, "Opted in by MachineOSConfigs: worker (pool worker).")
		assert.Contains(t, said, "sign its images with dayone sign, or delete that object")
		require.NoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(push), push))
		require.NoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: "worker"}, &mcfgv1.MachineOSConfig{}))
		require.True(t, apierrors.IsNotFound(e.Client.Get(t.Context(), client.ObjectKeyFromObject(copied), copied)))
		for key, version := range versionsOf(t, e) {
			assert.True(t, strings.HasPrefix(key, "CustomResourceDefinition ") || strings.HasPrefix(key, "Namespace "),
				"%s %s is left", key, version)
		}
		assert.Contains(t, must("status"), "is not installed")
		must("uninstall", "--yes")
	})

	t.Run("an interrupted removal is named", func(t *testing.T) {
		record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace,
			Name: "dayone-inventory", Labels: map[string]string{cluster.LabelManagedBy: cluster.ManagedBy}},
			Data: map[string]string{"objects": `[{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"gone"}]`,
				"options": "{}"}}
		require.NoError(t, e.Client.Create(t.Context(), record))
		says := must("status")
		assert.Contains(t, says, "is not installed")
		assert.Contains(t, says, "dayone-inventory notes an installation of 1 objects without dayone-controller")
		assert.False(t, installed("uninstall", "--yes"))
		assert.NotContains(t, must("status"), "finding:")
	})

	t.Run("uninstall takes its finalizer off builds", func(t *testing.T) {
		b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "b",
			Finalizers: []string{"dayone.dev/machine-os-build"}}, Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:   mcfgv1.MachineConfigReference{Name: "rendered-worker-1"},
			MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"}, RenderedImagePushSpec: "r.test/os/w:1"}}
		require.NoError(t, e.Client.Create(t.Context(), b))
		must("uninstall", "--yes")
		require.NoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(b), b))
		assert.Empty(t, b.Finalizers)
	})

	t.Run("the kinds go when that is asked for", func(t *testing.T) {
		must("uninstall", "--yes", "--crds")
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var crds apiextensionsv1.CustomResourceDefinitionList
			assert.NoError(c, e.Client.List(t.Context(), &crds))
			assert.Empty(c, crds.Items)
		}, clusterWait, clusterEvery)
	})
}

func machineOSConfig(pool string) *mcfgv1.MachineOSConfig {
	return &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"},
		RenderedImagePushSpec:   "registry.example.test/os/image:latest"}}
}

// versionsOf tells of every installed object whether it was written.
func versionsOf(t *testing.T, e *kubetest.Env) map[string]string {
	t.Helper()
	objects, err := clusterinstall.Objects(cluster.Options{Images: cluster.Images{Controller: "a", Builder: "b"}})
	require.NoError(t, err)
	versions := map[string]string{}
	for _, o := range objects {
		kind := o.GetKind()
		if o.GetAnnotations()[cluster.AnnotationCreateOnly] != "" || e.Client.Get(t.Context(), client.ObjectKeyFromObject(o),
			o) != nil {
			continue
		}
		version := o.GetResourceVersion()
		if generation := o.GetGeneration(); generation != 0 { // such kinds have a status, which changes by itself
			version = fmt.Sprintf("%s/%d", o.GetUID(), generation)
		}
		versions[kind+" "+o.GetName()] = version
	}
	return versions
}

func TestInstallBesideOthers(t *testing.T) {
	e := shared.New(t)
	kubeconfig := e.Kubeconfig(t)
	require.NoError(t, e.Client.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}}))
	mco := operatorDeployment("machine-config-controller")
	require.NoError(t, e.Client.Create(t.Context(), mco))
	code, _, errs := dayone(t, "cluster", "install", "--kubeconfig", kubeconfig, "--image", "r.test/all:1", "--mode",
		"full")
	assert.Equal(t, cli.ExitFailed, code)
	assert.Contains(t, errs,
		"Machine Config Operator's own controllers run here (Deployment "+
			"openshift-machine-config-operator/machine-config-controller)")
	assert.Contains(t, errs, "--mode advisor")

	mco.Spec.Replicas = new(int32)
	require.NoError(t, e.Client.Update(t.Context(), mco))
	for _, mode := range []string{"advisor", "builder"} {
		code, _, errs = dayone(t, "cluster", "install", "--kubeconfig", kubeconfig, "--image", "r.test/all:1", "--mode", mode)
		assert.Equal(t, cli.ExitFailed, code)
		assert.Contains(t, errs, "mode "+mode+" works beside a running Machine Config Operator, and none runs")
	}
	// Nobody runs pods here: the wait ends with what is missing. A busy machine may need more than the shortest for what
	// comes before it.
	for limit := 5 * time.Second; ; limit *= 2 {
		require.Less(t, limit, 2*clusterWait, errs)
		code, _, errs = dayone(t, "cluster", "install", "--kubeconfig", kubeconfig, "--image", "r.test/all:1", "--timeout",
			limit.String())
		assert.Equal(t, cli.ExitFailed, code)
		if strings.Contains(errs, "dayone-controller has 0 of 2 copies available (gave up after "+limit.String()) {
			break
		}
	}
	assert.Contains(t, errs, "19 kinds defined, 19 of them by the cluster")
	code, _, errs = dayone(t, "cluster", "uninstall", "--kubeconfig", kubeconfig, "--crds")
	assert.Equal(t, cli.ExitUsage, code)
	assert.Contains(t, errs, "pass --yes")
}
