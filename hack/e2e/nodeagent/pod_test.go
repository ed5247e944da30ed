package nodeagent

import (
	"os"
	"strconv"
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubecluster "dayone.dev/dayone/hack/kube/cluster"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/rebase/nodestate"
)

func TestMain(m *testing.M) {
	kubecluster.Init()
	os.Exit(m.Run())
}

// TestTheAgentInAPod goes through what differs between a pod and a service of the host. Reboots are
// hack/e2e/wholesystem's: the host here is a tree that was not booted.
func TestTheAgentInAPod(t *testing.T) {
	w := newWorld(t)
	first, second := w.config("rendered-worker-1", "one"), w.config("rendered-worker-2", "two")
	w.host(first)
	w.create(first)
	w.create(second)
	w.install()
	w.until("the node says what it has", func() bool {
		r := w.record()
		return r.State == nodestate.StateDone && r.CurrentConfig == first.Name
	})
	idle, _ := w.memory("idle")
	t.Log(idle)

	// The cluster's certificates and credentials come by the ControllerConfig; with nothing else the image could not be
	// fetched.
	w.until("certificates are there", func() bool { return w.read(nodedisk.KubeletCA) == string(w.ca) })
	image := w.push()
	w.annotate(manifests.AnnotationPrefetch, image)
	most := 0
	w.until("the image is fetched ahead", func() bool {
		_, own := w.memory("fetching")
		most = max(most, own)
		n := w.node()
		require.Empty(t, n.Annotations[manifests.AnnotationPrefetchError])
		return n.Annotations[manifests.AnnotationPrefetched] == image
	})
	t.Logf("most of the agent's own memory while it fetched: %d kB", most)
	assert.Less(t, most, maxOwnMemory)
	assert.Contains(t, w.onHost("ostree", "refs", "--repo=/ostree/repo"), "registry.dayone.test_3A_5000/os/worker_40_")
	assert.NotContains(t, w.onHost("ostree", "admin", "status"), "staged")

	// The pod goes in the middle of everything, and its successor goes on.
	var pods corev1.PodList
	require.NoError(t, w.client.List(t.Context(), &pods, client.InNamespace(namespace)))
	require.NoError(t, w.client.Delete(t.Context(), &pods.Items[0], client.GracePeriodSeconds(0)))
	w.annotate(manifests.AnnotationDesiredConfig, second.Name)
	w.until("the node has its second config", func() bool {
		r := w.record()
		return r.State == nodestate.StateDone && r.CurrentConfig == second.Name
	})
	assert.Equal(t, "two", w.read("/etc/app/text"))
	assert.Equal(t, image, w.node().Annotations[manifests.AnnotationPrefetched], "what was fetched is still there")
	record := &mcfgv1.MachineConfigNode{}
	w.until("its MachineConfigNode says so", func() bool {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: kubecluster.NodeName}, record))
		return meta.IsStatusConditionTrue(record.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdated)) &&
			record.Status.ConfigVersion.Current == second.Name
	})
}

// config is a rendered config of one file that no policy lets reboot.
func (w *world) config(name, text string) *mcfgv1.MachineConfig {
	mode := 0o640
	raw, err := machineconfig.Encode(ign35.Config{Ignition: ign35.Ignition{Version: machineconfig.Version},
		Storage: ign35.Storage{Files: []ign35.File{
			{Node: ign35.Node{Path: "/etc/app/text"}, FileEmbedded1: ign35.FileEmbedded1{Mode: &mode,
				Contents: machineconfig.Inline([]byte(text))}}}}})
	require.NoError(w.t, err)
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}}
}

// maxOwnMemory is what the agent may have for itself, in kB: 40 MiB.
const maxOwnMemory = 40 << 10

// memory is the agent's resident memory in kB: all of it, and without what it shares with its file.
func (w *world) memory(when string) (text string, own int) {
	// it may end meanwhile
	const find = `for p in /proc/[0-9]*; do
		if [ "$(cat $p/comm 2>/dev/null)" = dayone-daemon ]; then grep -E "^(VmRSS|RssAnon):" $p/status; fi
	done; true`
	out, err := w.cluster.NodeExec(w.t.Context(), "sh", "-c", find).Output()
	require.NoError(w.t, err)
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			own, err = strconv.Atoi(f[1])
			require.NoError(w.t, err)
		}
	}
	return when + ": " + strings.Join(strings.Fields(string(out)), " "), own
}
