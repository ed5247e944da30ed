package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/wanted"
)

// built makes a build that has pushed an image.
func (w *accountsWorld) built(build string, image wanted.Image) *mcfgv1.MachineOSBuild {
	b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: build,
		Annotations: map[string]string{manifests.AnnotationPushedImage: sharedName + "/" + image.Name()}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-infra-1"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "infra"},
			RenderedImagePushSpec: sharedName + "/ns/os:latest"}}
	w.create(b)
	return b
}

// conditions are those of the controller's ConfigMap, as text.
func (w *accountsWorld) conditions() string {
	var m corev1.ConfigMap
	if w.env.Client.Get(w.t.Context(), types.NamespacedName{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryName}, &m) != nil {
		return ""
	}
	return m.Data[cluster.StatusConditions]
}

// reports waits until the conditions have these words.
func (w *accountsWorld) reports(words ...string) {
	w.t.Helper()
	w.reads(w.conditions, words)
}

// everywhere waits until each registry has an image whole.
func (w *accountsWorld) everywhere(image wanted.Image) {
	w.t.Helper()
	for _, h := range w.hosts {
		require.Eventually(w.t, func() bool { return w.client.pull(h.addr, image) == nil }, rotationLimit,
			200*time.Millisecond, "%s has %s", h.node, image.Name())
	}
}

// haveAccounts waits until each node has its pool's.
func (w *accountsWorld) haveAccounts() {
	w.t.Helper()
	for _, n := range w.nodes {
		require.Eventually(w.t, func() bool { return exists(filepath.Join(n.dir, poolaccounts.AuthPath)) }, rotationLimit,
			200*time.Millisecond, "%s has its pool's account", n.name)
	}
}

// drop takes an image from a registry, as its collection does when nothing has wanted the image for a day.
func (w *accountsWorld) drop(h host, image wanted.Image) error {
	options, end, err := w.client.options(registry.PushAuthFile)
	if err != nil {
		return err
	}
	defer end()
	at, err := name.NewDigest(h.addr + "/" + image.Name())
	if err != nil {
		return err
	}
	return remote.Delete(at, options...)
}

// TestRestoreOfEtcd: etcd is set back to a snapshot, with the controller, the agents' work for registries and
// the nodes' pulls at work. What the list of then wants again comes from the one registry that still has it; what none
// has is named. An image that was built since stays where it is. Nodes go back to the accounts of then by themselves,
// and pull.
func TestRestoreOfEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	w := newAccountsWorldOf(t, newFleet(t), kubetest.Start(t, kubetest.Options{}))
	w.run()
	_, stop := w.control(1 << 30)
	defer func() { stop() }()
	w.says("True Current: ")
	one, none := w.client.push(t, w.hosts[0].addr), w.client.push(t, w.hosts[1].addr)
	builds := []ctrlclient.Object{w.built("one", one), w.built("none", none), w.built("stays", *w.image.Load())}
	w.everywhere(one)
	w.everywhere(none)
	w.reports("AllHeld", "3 images are in the registries of 3 ready")
	w.haveAccounts()
	then := w.nodes["w0"].account(t)
	restore := w.env.BackUp(t)

	require.NoError(t, w.env.Client.Delete(t.Context(), builds[0]))
	require.NoError(t, w.env.Client.Delete(t.Context(), builds[1]))
	since := w.client.push(t, w.hosts[2].addr)
	w.built("since", since)
	w.everywhere(since)
	w.annotate(w.pool("worker"), "since")
	w.refused(then)
	w.says("True Current: ")
	w.reports("AllHeld", "2 images are in the registries of 3 ready")
	for i, h := range w.hosts {
		require.NoError(t, w.drop(h, none))
		if i > 0 {
			require.NoError(t, w.drop(h, one))
		}
	}
	made := w.nodes["w0"].account(t)
	require.NotEqual(t, then, made)

	w.restoring.Store(true)
	restore()
	// Kubernetes tells no watcher that revisions have begun again. The program notices it and ends (cmd/internal/manager);
	// here it does not run as a process.
	stop()
	_, stop = w.control(1 << 30)
	began := time.Now()
	w.reports("ImagesHeld", "1 of 3 images are missing", none.Name(), "no other registry has it whole")
	w.everywhere(one)
	w.everywhere(since)
	for _, n := range []string{"w0", "w1"} {
		require.Eventually(t, func() bool {
			return w.nodes[n].account(t) == then && w.nodes[n].pull(w.hosts[0].addr, one) == nil
		}, rotationLimit, 200*time.Millisecond, "%s pulls with the account of the backup", n)
	}
	w.refused(made)
	t.Logf("the status is complete %s after the restore", time.Since(began).Round(time.Second))

	// The agent says at each look what its node runs.
	w.runs("w0", since)
	w.reports("ReferencesKnown", "node w0 names "+sharedName+"/"+since.Name())
	w.says("True Current: ")

	w.restoring.Store(false)
	pulls := w.pulls.Load()
	require.Eventually(t, func() bool { return w.pulls.Load() > pulls+50 }, rotationLimit, 100*time.Millisecond)
	require.FileExists(t, filepath.Join(w.hosts[0].state(), wanted.ListFile))
	code, _ := w.hosts[0].ask(t, then.Username, then.Password)
	assert.Equal(t, http.StatusOK, code)
}
