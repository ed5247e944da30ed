package podimages_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// largeBytes is a layer of which half is on its way when a registry dies.
const largeBytes = 64 << 20

func TestMain(m *testing.M) {
	kubecluster.Init()
	os.Exit(m.Run())
}

// TestKubeletPullsFromTheMasters: the page's lines bring dayone's images into the control plane's registries and dayone
// into the cluster, whose kubelet pulls them from there. A pod of another namespace needs the page's Secret, and the
// runtime the registries' CA: without them kubelet says what the page says. The first registry dies, also in the middle
// of a layer, and pulls go on from the next one.
func TestKubeletPullsFromTheMasters(t *testing.T) {
	w := newWorld(t)
	w.release("dayone-controller", "machine-os-builder")
	add := w.block("dayone cluster registry add ")
	controller := w.sh(add)
	require.Regexp(t, "^"+registryName+"/dayone/dayone-controller@sha256:[0-9a-f]{64}$", controller)
	builder := w.sh(strings.ReplaceAll(add, "dayone-controller", "machine-os-builder"))
	large := w.sh(strings.Replace(strings.Replace(add, "dayone/dayone-controller", "apps/large", 1), "dayone-controller",
		"large", 1))

	w.sh(w.block("kubectl create secret generic " + cluster.RegistryImagesPull))
	distrusts := w.pod("distrusts", controller, cluster.RegistryImagesPull)
	w.said(w.says(distrusts, "x509"))
	const trusted = "/run/dayone/certs.d/" + registryName
	w.inNode("mkdir -p " + trusted + " && cp " + w.dir + "/registry-files/ca.crt " + trusted)
	w.runs(distrusts)
	w.said(w.says(w.pod("anonymous", controller), "authoriz"))

	w.sh("dayone cluster install --replicas 1 --image controller=" + controller + " --image builder=" + builder +
		" --image-pull-secret " + cluster.RegistryImagesPull)
	var d appsv1.Deployment
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
		Name: cluster.Controller}, &d))
	assert.EqualValues(t, 1, d.Status.AvailableReplicas)

	w.cut.Store(largeBytes / 2)
	w.runs(w.pod("in-the-middle", large, cluster.RegistryImagesPull))
	require.LessOrEqual(t, w.cut.Load(), int64(0), "the first registry died in the middle")
	w.runs(w.pod("first-is-down", builder, cluster.RegistryImagesPull))
}

// said looks for the words of kubelet on the page.
func (w *world) said(message string) {
	w.Helper()
	raw, err := os.ReadFile(page)
	require.NoError(w, err)
	for line := range strings.Lines(string(raw)) {
		if quoted := strings.SplitN(line, "`", 3); strings.HasPrefix(line, "| `") && len(quoted) == 3 &&
			strings.Contains(message, quoted[1]) {
			return
		}
	}
	assert.Fail(w, "the page does not say what kubelet says", message)
}
