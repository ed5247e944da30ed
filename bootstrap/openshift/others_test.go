package openshift_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/e2e/mcostandin"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// What builds of the worker need beside its MachineOSConfig, by the names that MCO knows.
const besideWorker = `apiVersion: v1
kind: ConfigMap
metadata: {name: etc-yum-repos-d, namespace: openshift-machine-config-operator}
data: {a.repo: "[a]"}
---
apiVersion: v1
kind: Secret
metadata: {name: etc-pki-rpm-gpg, namespace: openshift-machine-config-operator}
data: {key: a2V5}
`

// workerInCluster has the worker's image built in the cluster, the default, with an annotation on its MachineOSConfig.
func workerInCluster(t *testing.T, change func(*installconfig.Config)) *node {
	n := newNode(t, func(c *installconfig.Config) {
		onePool(c)
		if change != nil {
			change(c)
		}
	})
	file := filepath.Join(n.order.Dir, "layering/worker.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	annotated := strings.Replace(string(raw), "  name: worker\n",
		"  name: worker\n  annotations: {example.com/owner: platform}\n", 1)
	require.NotEqual(t, string(raw), annotated)
	require.NoError(t, os.WriteFile(file, []byte(annotated), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(n.order.Dir, "layering/builds.yaml"), []byte(besideWorker), 0o600))
	t.Cleanup(func() {
		for _, o := range beside() {
			assert.NoError(t, client.IgnoreNotFound(shared.Env(t).Client.Delete(context.Background(), o)))
		}
	})
	return n
}

func beside() []client.Object {
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "openshift-machine-config-operator", Name: name}
	}
	return []client.Object{&corev1.ConfigMap{ObjectMeta: at("etc-yum-repos-d")},
		&corev1.Secret{ObjectMeta: at("etc-pki-rpm-gpg")}, &corev1.Secret{ObjectMeta: at("os-push")}}
}

// inCluster says that the cluster is to build the worker's image and has all that it needs.
func (n *node) inCluster() {
	t, api := n.t, shared.Env(n.t).Client
	m := &mcfgv1.MachineOSConfig{}
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "worker"}, m))
	assert.Equal(t, "platform", m.Annotations["example.com/owner"])
	assert.NotContains(t, m.Annotations, manifests.AnnotationPreBuiltImage)
	require.NotEmpty(t, m.Spec.Containerfile)
	assert.Contains(t, m.Spec.Containerfile[0].Content, "workers are built by the cluster")
	for _, o := range beside() {
		assert.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(o), o), o.GetName())
	}
}

// Every pool's MachineOSConfig reaches the cluster, also those that MCO's bootstrap must not see, and the bootstrap
// does not end before.
func TestPoolsBuiltInTheCluster(t *testing.T) {
	n := workerInCluster(t, nil)
	require.NoError(t, n.mco())
	n.cluster()
	end := n.run("hand-over", "objects")
	require.ErrorContains(t, end.Err, "killed", end.Log)
	n.inCluster()
	require.NoFileExists(t, n.at("/etc/mcc/bootstrap/99_dayone-machineosconfig-worker.yaml"))

	// Somebody deletes the worker's MachineOSConfig before the hand-over has seen it: the next run writes it again.
	api := shared.Env(t).Client
	require.NoError(t, api.Delete(t.Context(), &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}))
	assert.False(t, n.released())
	end = n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.released())
	n.inCluster()
	assert.Equal(t, []string{"master"}, keys(n.result().Images), "only the masters' image is built here")
}

func keys(m map[string]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// The bootstrap waits for a pool that the cluster is to build an image for.
func TestPoolOfTheClusterIsMissing(t *testing.T) {
	n := workerInCluster(t, nil)
	require.NoError(t, n.mco())
	n.cluster()
	api := shared.Env(t).Client
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	require.NoError(t, api.Delete(t.Context(), pool))
	wait := n.start("", "")
	n.recorded("pool worker: it is not in the cluster, which is to build its image")
	assert.False(t, n.released())
	require.NoError(t, api.Create(t.Context(), mcostandin.Pool("worker")))
	end := wait()
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.released())
}

// A fallback takes the layered image from the masters only.
func TestFallbackKeepsPoolsOfTheCluster(t *testing.T) {
	n := workerInCluster(t, func(c *installconfig.Config) { c.OnFailure = installconfig.OnFailureFallback })
	file := filepath.Join(n.order.Dir, "layering/master.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(raw), "RUN GREETING", "RUN false && GREETING", 1)),
		0o600))
	require.NoError(t, n.mco())
	n.cluster()
	end := n.run("", "")
	require.NoError(t, end.Err, end.Log)
	assert.True(t, n.open())
	assert.True(t, n.released())
	n.inCluster()
}
