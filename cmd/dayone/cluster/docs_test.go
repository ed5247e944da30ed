package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/bootstrap/clusterregistry"
	"dayone.dev/dayone/build/mcobuild"
	"dayone.dev/dayone/hack/codeblocks"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/forecast"
)

// elsewhere are lines of kubectl that other tests run.
var elsewhere = []string{"kubectl dayone ", "kubectl apply --server-side -k kustomize"} // cmd/dayone, hack/release

// Every line of kubectl and oc in the pages finds what it names, with the real kubectl on a real API server. The
// objects have the names and keys that the controllers give them.
func TestKubectlLinesOfThePages(t *testing.T) {
	e := kubetest.Start(t, kubetest.Options{CRDPaths: kubetest.APICRDs(t, "config/v1/*_clusteroperators")})
	theClusterOfThePages(t, e)
	programs, err := kube.Assets(t.Context(), nil)
	require.NoError(t, err)
	bin, dir := t.TempDir(), t.TempDir()
	// What the pages use of oc is kubectl's.
	require.NoError(t, os.WriteFile(filepath.Join(bin, "oc"), []byte("#!/bin/sh\nexec kubectl \"$@\"\n"), 0o755))
	for _, name := range []string{"DIR", "IN", "registry-files"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "registry-files", "pull-auth.json"), []byte(`{"auths":{}}`), 0o600))
	config := machineOSConfig("worker")
	config.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineOSConfig"))
	raw, err := yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker-machineosconfig.yaml"), raw, 0o600))
	lines := kubectlLines(t)
	require.Greater(t, len(lines), 15)
	for _, l := range lines {
		cmd := exec.CommandContext(t.Context(), "/bin/bash", "-euo", "pipefail", "-c",
			strings.ReplaceAll(l.text, "NAME", "name"))
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + bin + ":" + programs + ":/usr/bin:/bin", "HOME=" + dir,
			"KUBECONFIG=" + e.Kubeconfig(t)}
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s: %s", l.at, l.text, &errs)
		assert.True(t, len(out) > 0 || strings.Contains(l.text, " > "), "%s: %s prints nothing", l.at, l.text)
	}
	for _, file := range []string{"DIR/cluster.json", "DIR/configs.json", "DIR/mirrors.json", "IN/osimagestream.yaml"} {
		assert.FileExists(t, filepath.Join(dir, file))
	}
}

// line is a command of a page.
type line struct{ at, text string }

// kubectlLines are those of all pages but docs/users/kubeadm.md, which hack/e2e/kubeadm runs as a whole.
func kubectlLines(t *testing.T) (out []line) {
	t.Helper()
	pages, err := filepath.Glob("../../../docs/*/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		blocks, err := codeblocks.Of(page)
		require.NoError(t, err)
		if filepath.Base(page) == "kubeadm.md" {
			blocks = nil
		}
		for _, b := range blocks {
			for _, text := range b.Commands() {
				begins := func(with string) bool { return strings.HasPrefix(text, with) }
				if (begins("kubectl ") || begins("oc ")) && !slices.ContainsFunc(elsewhere, begins) {
					out = append(out, line{fmt.Sprintf("%s:%d", page, b.Line), text})
				}
			}
		}
	}
	return out
}

// theClusterOfThePages has what the lines name, with what the controllers would have written.
func theClusterOfThePages(t *testing.T, e *kubetest.Env) {
	t.Helper()
	configMap := func(namespace, name, key string, labels map[string]string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Data: map[string]string{key: "it is so"}}
	}
	labels := map[string]string{"pool": "worker"}
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "name"}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-a"}, RenderedImagePushSpec: "r.example.com/a/b:c",
		MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"}}}
	stream := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{
		DefaultStream: "rhel-9"}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.AdvisorNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace}},
		&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: mcfgv1.MachineConfigPoolSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: labels}}},
		machineOSConfig("worker"), build, stream,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3", Annotations: map[string]string{"a": "b"}}},
		&configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dayone"}},
		configMap(cluster.AdvisorNamespace, mcobuild.RecordName("name"), "summary", mcobuild.Records("worker")),
		configMap(cluster.AdvisorNamespace, forecast.ConfigMapPrefix+"worker", forecast.KeySummary, nil),
		configMap(cluster.AdvisorNamespace, cluster.StatusName, cluster.StatusConditions, nil),
		configMap(cluster.DefaultNamespace, cluster.ReleaseName, cluster.StatusConditions, nil),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: clusterregistry.PushSecret}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "explained"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"}, Reason: "BuildFailureExplained"},
	} {
		require.NoError(t, e.Client.Create(t.Context(), o), "%T %s", o, o.GetName())
	}
	installed, err := cluster.Objects(cluster.Options{NodeAgent: true, Images: cluster.Images{Controller: "r.test/c:1",
		Builder: "r.test/b:1", Daemon: "r.test/d:1"}})
	require.NoError(t, err)
	for _, o := range installed {
		if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
			require.NoError(t, e.Client.Create(t.Context(), o), o.GetName())
		}
	}
}
