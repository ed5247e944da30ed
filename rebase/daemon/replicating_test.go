package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
	"dayone.dev/dayone/rebase/registrycontroller"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const finalName = "api-int.lab.example.com:22626"

// registries runs the registries' controller under its own account.
func (f *fixture) registries(metrics prometheus.Registerer) {
	f.Helper()
	mgr, err := ctrl.NewManager(f.env.As(f.T, cluster.DefaultNamespace, cluster.Controller),
		ctrl.Options{Scheme: f.env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
			Controller: kubetest.Controllers()})
	require.NoError(f, err)
	require.NoError(f, registrycontroller.SetupWithManager(mgr, registrycontroller.Options{Registry: finalName,
		Namespace: cluster.DefaultNamespace, Metrics: metrics}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	f.Cleanup(sync.OnceFunc(func() {
		cancel()
		assert.NoError(f, <-ended)
	}))
}

// conditions are those of the controller's ConfigMap, as text.
func (f *fixture) conditions() string {
	var m corev1.ConfigMap
	err := f.env.Client.Get(f.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace,
		Name: cluster.RegistryName}, &m)
	require.NoError(f, client.IgnoreNotFound(err))
	return m.Data[cluster.StatusConditions]
}

func (f *fixture) says(words ...string) {
	f.Helper()
	var last string
	require.Eventually(f, func() bool {
		last = f.conditions()
		for _, w := range words {
			if !strings.Contains(last, w) {
				return false
			}
		}
		return true
	}, 2*time.Minute, 50*time.Millisecond, "%v in %v", words, &last)
}

// TestFromABuildToTheRegistryAndBack: what a build made comes by the controller and the agent to the node's registry,
// and its word comes back: all real parts, each under its own account.
func TestFromABuildToTheRegistryAndBack(t *testing.T) {
	f := newRealFixture(t)
	dir := filepath.Join(f.m.root, wanted.Dir)
	reg := registrytest.Start(t, func(o *registry.Options) {
		o.Beside = func(ctx context.Context, store *storage.Store) {
			replica.Run(ctx, store, replica.Options{Dir: dir, Every: 50 * time.Millisecond,
				Peers: func() (peers.List, error) { return peers.Read(filepath.Join(f.m.root, peers.Path)) }})
		}
	})
	img, err := random.Image(1000, 1)
	require.NoError(t, err)
	d, err := img.Digest()
	require.NoError(t, err)
	f.join(rendered("rendered-replica-1"), "")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	n := f.object()
	n.Labels["node-role.kubernetes.io/control-plane"] = ""
	forged := finalName + "/ns/os@sha256:" + strings.Repeat("f", 64)
	n.Annotations[manifests.AnnotationPrefetch] = forged
	require.NoError(t, f.env.Client.Update(t.Context(), n))
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	require.NoError(t, f.env.Client.Status().Update(t.Context(), n))
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "build-replica",
		Annotations: map[string]string{manifests.AnnotationPushedImage: finalName + "/ns/os@" + d.String()}},
		Spec: mcfgv1.MachineOSBuildSpec{MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-replica-1"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: "worker"},
			RenderedImagePushSpec: finalName + "/ns/os:latest"}}
	f.create(build)
	metrics := prometheus.NewPedanticRegistry()
	f.registries(metrics)
	end := f.running(false)
	defer end()
	f.says(`"ImagesHeld"`, `"False"`, "1 of 1 images are missing", f.name, "ReferencesKnown", forged)

	to, err := name.NewDigest(reg.Addr + "/ns/os@" + d.String())
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, img, reg.Pusher(t)...))
	f.says("AllHeld", "1 images are in the registries of 1 ready")
	families, err := metrics.Gather()
	require.NoError(t, err)
	shown := map[string]float64{}
	for _, family := range families {
		shown[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	assert.Equal(t, []float64{1, 1, 1, 1}, []float64{shown["dayone_replica_ready"], shown["dayone_replica_held_images"],
		shown["dayone_replica_wanted_images"], shown["dayone_replica_unknown_references"]})
	status, err := registrystatus.ReadStatus(t.Context(), f.env.Client, cluster.DefaultNamespace)
	require.NoError(t, err)
	require.Len(t, status.Images, 2)
	for _, i := range status.Images {
		assert.Equal(t, !i.OnlyKeep, len(i.Held) == 1, "the image that only a node names is not fetched")
	}
	list, err := peers.Read(filepath.Join(f.m.root, peers.Path))
	require.NoError(t, err)
	assert.Equal(t, peers.List{Registry: finalName, Peers: []peers.Peer{{Name: f.name, Address: "192.0.2.7:22626"}}}, list)

	require.NoError(t, os.Remove(filepath.Join(dir, wanted.ListFile)))
	reg.Stop(t)
	then := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, wanted.ReportFile), then, then))
	f.says("journalctl -u dayone-registry")
	require.NoError(t, reg.Server.Start())
}
